"""A report of several experiments: a scoreboard each, an overview on top, and nothing compared between them."""

import json
import re

import pytest
from report_runs import (
    EPOCH,
    RUN,
    SKIPPED,
    cells_of,
    render,
    report_of,
    row_of,
    run_of,
    write_evaluation,
    write_origin,
)


def setup_module() -> None:
    global \
        Cell, \
        PublishedRow, \
        Spread, \
        standard_error, \
        format_experiments, \
        format_table, \
        overview, \
        published_cells, \
        scoreboard
    global sweeps
    from pipeline.report import format_experiments, format_table
    from pipeline.report.blocks import Cell
    from pipeline.report.data.published import PublishedRow
    from pipeline.report.formats import Spread
    from pipeline.report.sections.charts import sweeps
    from pipeline.report.sections.scoreboard import overview, published_cells, scoreboard, standard_error


DIGESTS = {"train": "1" * 64, "test": "2" * 64}
MNIST = {
    "dataset": "mnist",
    "requested_dataset": "mnist",
    "experiment": "mnist_cnn",
    "model": "mnist_cnn",
    "training_recipe": "adam",
    "test_accuracy": 0.9926,
    "test_examples": 10_000,
    "content_digests": DIGESTS,
    "steps_per_epoch": 234,
}


@pytest.fixture
def runs(make_run):
    """The folder of a run of cifar10 and of several of mnist_cnn, by batch and on two kinds of hardware."""
    mnist = [
        make_run(f"mnist{size}", fingerprint=f"{size:064x}", **{**MNIST, "global_batch_size": size})
        for size in (256, 512)
    ]
    gpu = {"effective_device": "gpu", "device_name": "H200", "examples_per_second": 30_000.0}
    # The same settings and data on a GPU, of another experiment.
    other = make_run("other", fingerprint="f" * 64, **{**MNIST, **gpu, "experiment": "mine", "global_batch_size": 256})
    return [make_run("cifar10"), *mnist, other]


def test_each_experiment_has_a_scoreboard_and_the_overview_a_line_for_each(runs, tmp_path):
    files = render(runs, tmp_path / "out")
    for name in ("cifar10", "mnist_cnn", "mine"):
        assert f"Scoreboard: {name}</h2>" in files["report.html"]
    # Markdown has only the unfolded one.
    assert re.findall("## Scoreboard: (.*)", files["report.md"]) == ["cifar10"]
    overview = files["report.html"].partition('<h2 id="overview">')[2].partition("</section>")[0]
    assert re.findall(r'<th scope="row">(\w+)</th>', overview) == ["cifar10", "mine", "mnist_cnn"]
    assert "cpu (AMD EPYC 9B14), bfloat16" in overview, "time and hardware"
    assert files["report.html"].index('id="overview"') < files["report.html"].index('id="scoreboard"')
    # Unfolded is the one that was asked for.
    assert files["report.html"].count("of another experiment</summary>") == 2
    report = json.loads(files["report.json"])
    assert [one["name"] for one in report["experiments"]] == ["cifar10", "mine", "mnist_cnn"]
    assert report["experiments"][0]["best"]["run"] == report["experiments"][0]["newest"] == RUN["fingerprint"]


def test_one_experiment_alone_needs_no_overview(make_run, tmp_path):
    files = render([make_run()], tmp_path / "out")
    assert 'id="overview"' not in files["report.html"]
    assert '<h2 id="scoreboard">Scoreboard</h2>' in files["report.html"]
    assert "## Experiments" not in files["report.md"]


def test_no_two_experiments_are_compared(runs, make_run):
    report = report_of(runs)
    assert not [row for row in report.scenarios if row.speedup.ratio]
    words = {row.run.experiment: row.speedup.words for row in report.scenarios}
    assert "in experiment" in words["mine"]
    assert {group[0].experiment for group in report.history} == {"mine", "mnist_cnn"}


def test_a_record_of_before_there_were_experiments_belongs_to_that_of_its_dataset(make_run):
    folders = [make_run(), make_run("m", dataset="mnist", requested_dataset="mnist", fingerprint="b" * 64)]
    assert {run.experiment for run in report_of(folders).runs} == {"cifar10", "mnist"}


def test_the_terminal_shows_the_overview_and_the_scoreboard_that_was_asked_for(runs):
    text = format_table(report_of(runs))
    assert max(map(len, text.splitlines())) <= 120
    assert "Scoreboard: cifar10" in text
    assert "Scoreboard: mnist_cnn" not in text
    assert "99.26%" in text, "in the overview"
    assert "99.26%" in format_table(report_of(runs), width=60)


@pytest.mark.parametrize(
    ("problem", "mean", "deviation", "examples", "words"),
    [
        ("image_classification", 0.9926, None, 100, "standard error 1.3 points"),
        ("image_classification", 0.864, None, 734, "standard error 1.3 points"),
        ("image_classification", 0.75, None, 10_000, ""),
        ("image_classification", None, None, 10_000, ""),
        ("image_classification", 0.99, None, None, ""),
        ("image_classification", 0.99, None, 0, ""),
        # Five characters of a text, and examples of an unknown problem, count as one.
        ("next_token", 0.55, None, 1_552, "standard error 2.8 points"),
        ("next_token", 0.55, None, 111_500, ""),
        ("next_token", 0.55, None, None, ""),
        ("another version's", 0.55, None, 1_552, "standard error 2.8 points"),
    ],
)
def test_the_standard_error_is_stated_where_the_images_are_few(problem, mean, deviation, examples, words):
    run = run_of(problem=problem, test_examples=examples)
    assert standard_error(row_of(run, test_accuracy=Spread(mean, deviation))) == words


def test_the_standard_error_of_grouped_images_is_a_lower_bound():
    run = run_of(test_examples=100, division={"by": "group", "test_share": 0.2, "validation_share": None})
    assert standard_error(row_of(run, test_accuracy=Spread(0.9926, None))) == "standard error at least 1.3 points"


def test_the_most_confident_mistakes_come_first_and_have_a_red_border(make_run, tmp_path):
    page = render([write_evaluation(make_run())], tmp_path / "out")["report.html"]
    gallery = page.partition("Mistakes: 18 of 90 test images, the 2 most confident first</h3>")[2]
    entries = re.findall(r"<li.*?</li>", gallery.partition("</ul>")[0], re.DOTALL)
    assert ['class="mistake"' in entry for entry in entries] == [True, True]
    assert "97.0%" in entries[0]
    assert "90.0%" in entries[1]
    assert ".gallery .mistake img { border: 2px solid var(--alarm)" in page


def test_six_experiments_stay_a_small_page(make_run, tmp_path):
    curves = [EPOCH | {"epoch": epoch} for epoch in range(1, 21)]
    folders = [
        write_origin(
            make_run(f"{name}{n}", curves, fingerprint=f"{name}{n}".ljust(64, "0"), experiment=f"exp-{name}", seed=n)
        )
        for name in "abcdef"
        for n in range(5)
    ]
    page = render(folders, tmp_path / "out", current=["a0".ljust(64, "0")], drawn=True)["report.html"]
    assert len(page.encode()) < 400_000


def test_the_results_have_a_table_for_each_experiment_beside_what_was_published_and_the_machines(runs):
    text = format_experiments(report_of(runs))
    tables = {part.partition("\n")[0]: part for part in text.split("### ")[1:]}
    assert set(tables) == {"cifar10", "mine", "mnist_cnn"}
    assert "| 1 | baseline_cnn / onecycle (" in tables["cifar10"]
    assert "Settings: batch 128 · 2 epochs · bfloat16 · seed 0 · cifar10 (verified)." in tables["cifar10"]
    assert "| batch |" in tables["mnist_cnn"]
    published = next(line for line in tables["cifar10"].splitlines() if "GPU runtime" in line)
    assert "73.36%" in published
    assert "(the TPU's host: the resolver had failed)" in tables["cifar10"]
    assert "Not stated: which CPU, GPU and TPU; " in tables["cifar10"]
    machines = re.findall(r"^- Measured on: (.*), bfloat16, device verified$", text, re.M)
    assert sorted(machines) == ["AMD EPYC 9B14", "H200"]
    for experiment, machine in {"cifar10": "AMD EPYC 9B14", "mnist_cnn": "AMD EPYC 9B14", "mine": "H200"}.items():
        assert f"({machine}) |" in tables[experiment]
    assert "ublished elsewhere" not in format_experiments(report_of(runs, published=[]))


def test_the_results_omit_a_machine_that_only_a_replaced_run_was_made_on(make_run):
    old = make_run("old", fingerprint="a" * 64, finished_at="2026-01-01T00:00:00+00:00", granted_memory_gib=1.0)
    text = format_experiments(report_of([old, make_run()]))
    assert text.count("- Measured on: ") == 1


def test_rows_tell_augmentations_apart(make_run, tmp_path):
    plain, flipped = make_run("plain"), make_run("flipped", fingerprint="b" * 64, augment="flip, crop:4")
    for text in (
        format_experiments(report_of([plain, flipped])),
        render([plain, flipped], tmp_path / "out", current=[])["report.md"],
    ):
        rows = [line.split(" | ")[2] for line in text.splitlines() if "| baseline_cnn / onecycle" in line]
        assert sorted(rows) == ["flip, crop:4", "none"]


def test_the_results_of_nothing_and_of_names_that_would_be_markup(runs, make_run):
    hostile = make_run("hostile", fingerprint="e" * 64, **{**MNIST, "model": "a|b<script>", "global_batch_size": 7})
    table = format_experiments(report_of([*runs, hostile]))
    assert "a\\|b&lt;script&gt;" in table
    assert format_experiments(report_of([], current=[])) == ""


HOSTILE = "*a* | [x](http://evil.example) <script>"


def test_nothing_that_is_published_becomes_markup_in_the_results(make_run):
    row = PublishedRow(
        scenario=HOSTILE,
        device_note=HOSTILE,
        details=(HOSTILE,),
        source=HOSTILE,
        not_stated=(HOSTILE,),
        experiment="cifar10",
        datasets=("cifar10",),
        requested_device="cpu",
        effective_device="cpu",
    )
    lines = format_experiments(report_of([make_run()], published=[row])).splitlines()
    for line in (line for line in lines if "evil" in line):
        assert "<script" not in line
        assert "\\*a\\*" in line
        assert not re.search(r"(?<!\\)\[x", line)
    assert {line.count(" | ") for line in lines if "evil" in line and line[0] == "|"} == {2}


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"test_loss": 1.4697}, "loss 1.4697"),
        ({"test_loss": 1.88}, "loss 1.88"),
        ({"test_accuracy": 0.983}, "98.3%"),
        ({"test_accuracy": 0.7242}, "72.42%"),
        ({"train_seconds": 11164.0}, "11,164"),
        ({"train_seconds": 167.84}, "167.84"),
        ({"epoch_seconds": 2.5}, "2.5 s per epoch"),
        ({"microseconds_per_example": 37.5}, "37.5 µs per image"),
    ],
)
def test_a_published_figure_keeps_its_digits(figures, words):
    about = {"scenario": "a", "requested_device": "cpu", "effective_device": "cpu", "experiment": "a", "source": "b"}
    cells = published_cells(PublishedRow(**about, datasets=("cifar10",), **figures))
    assert words in [text for cell in cells for text in (cell.lines() if isinstance(cell, Cell) else [cell])]


def test_rows_tell_the_size_of_their_images_and_the_length_of_their_sequences_apart(make_run, tmp_path):
    sizes = {"96×96×3": (96, 96, 3), "192×192×3": (192, 192, 3)}
    facts = {"dataset": "flowers", "requested_dataset": "flowers", "experiment": "flowers"}
    texts = {"sequences of 100": (100,), "sequences of 200": (200,)}
    of_text = {**facts, "problem": "next_token", "experiment": "plays"}
    folders = [
        make_run(f"{n}", fingerprint=f"{n:064x}", **more, input_shape=shape)
        for n, (more, shape) in enumerate(
            [*((facts, shape) for shape in sizes.values()), *((of_text, shape) for shape in texts.values())], start=1
        )
    ]
    table = format_experiments(report_of(folders, current=[]))
    page = render(folders, tmp_path / "out", current=[])["report.html"]
    for phrase in (*sizes, *texts):
        assert re.search(rf"\| baseline_cnn / onecycle \(0+\) \| {phrase} \|", table)
        assert f'<td data-label="input shape">{phrase}</td>' in page


@pytest.mark.parametrize(
    ("changes", "is_ranked"),
    [
        ({"content_digests": {"test": "3" * 64}}, False),
        ({"content_digests": {"test": "3" * 64}, "input_shape": [32, 32, 3], "test_examples": 9_000}, False),
        # The same images with another size have other digests.
        ({"content_digests": {"test": "3" * 64}, "input_shape": [32, 32, 3]}, True),
        ({"content_digests": {"train": "3" * 64, "test": "2" * 64}}, True),
        ({"content_digests": None}, True),
    ],
)
def test_a_better_row_with_other_test_data_is_not_ranked_and_not_the_best(make_run, changes, is_ranked):
    facts = MNIST | {"input_shape": [28, 28, 3]}
    newer = {"fingerprint": "b" * 64, "finished_at": "2026-03-02T10:00:00+00:00"}
    folders = [
        make_run("old", **facts | {"test_accuracy": 0.9999} | changes),
        make_run("new", **facts | newer),
        make_run("weak", **facts | newer | {"fingerprint": "c" * 64, "test_accuracy": 0.5, "global_batch_size": 64}),
        make_run("skipped", **facts | SKIPPED | {"fingerprint": "d" * 64}),
    ]
    report = report_of(folders, ["b" * 64])
    table = scoreboard(report, "mnist_cnn")
    remark = "other test data"
    rows = [(number, name.anchor[4], remark in name.alarms) for number, name, *_ in table.rows]
    ranked_rows = [("2", "b", False), ("3", "c", False)]
    if is_ranked:
        assert rows == [("1", "a", False), *ranked_rows, ("–", "d", False)]
    else:
        assert rows == [("1", "b", False), ("2", "c", False), ("–", "a", True), ("–", "d", False)]
    assert report.best().fingerprint[0] == ("a" if is_ranked else "b")
    times = next(sweeps(report)).blocks[0].plot.args[0][0].lines
    assert len(times) == (3 if is_ranked else 2)


def test_the_overview_names_placeholder_data_and_the_number_of_runs_above_one(runs, make_run):
    placeholder = {"dataset": "synthetic", "requested_dataset": "cifar10", "dataset_verified": False}
    newest = {"fingerprint": "e" * 64, "finished_at": "2026-03-02T10:00:00+00:00"}
    report = report_of([*runs, make_run("placeholder", **placeholder | newest)])
    cells = {row["experiment"]: row for row in cells_of(next(overview(report)).blocks[0])}
    assert cells["cifar10"]["newest"] == "73.80%, placeholder data, 2026-03-02 10:00 UTC"
    assert cells["cifar10"]["model"] == "baseline_cnn / onecycle"
    assert cells["mine"]["change"] == "no comparable earlier run"


def test_an_experiment_and_the_history_compare_the_same_runs(runs, make_run):
    """All seeds of the newest command with the runs of other code, whichever of them were requested."""
    facts = MNIST | {"experiment": "cifar10", "dataset": "cifar10"}
    accuracies = {"1": (0.9, 0.91), "2": (0.8, 0.96, 0.91)}
    folders = [
        write_origin(
            make_run(
                f"{code}{seed}",
                **facts
                | {"fingerprint": (code + str(seed)) * 32, "seed": seed, "test_accuracy": accuracy}
                | {"finished_at": f"2026-03-{code}{seed}T10:00:00+00:00"},
            ),
            code=code,
        )
        for code, values in accuracies.items()
        for seed, accuracy in enumerate(values, start=1)
    ]
    report = report_of([*runs, *folders], current=["22" * 32])
    experiment = next(one for one in report.experiments if one.name == "cifar10")
    assert [experiment.change] == report.changes
    assert experiment.change.earlier == 2
    assert experiment.change.test_accuracy.value == pytest.approx(0.89)
    (one_command,) = report_of(folders[2:], current=["22" * 32]).changes
    assert one_command.earlier == 0
