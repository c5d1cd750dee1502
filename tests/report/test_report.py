"""Report: runs to scoreboard, JSON, Markdown, HTML and terminal table."""

import json
import math
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from html_outline import Outline
from luigi_process import PROJECT
from report_runs import EPOCH, NAMES, RUN, published, render, report_of, run_of, write_evaluation

from pipeline.errors import DamagedArtifactError


def setup_module() -> None:
    global PUBLISHED, Spread, build_report, format_table, metric
    from pipeline.report import build_report, format_table
    from pipeline.report.formats import Spread
    from pipeline.report.sections.scoreboard import metric

    PUBLISHED = [row for row in published() if row.experiment == "cifar10"]


PROMISED = {
    "dataset",
    "dataset_verified",
    "model",
    "training_recipe",
    "requested_device",
    "effective_device",
    "device_verified",
    "num_replicas",
    "global_batch_size",
    "epochs",
    "seed",
    "precision",
    "jit_compile",
    "train_seconds",
    "first_epoch_seconds",
    "examples_per_second",
    "test_accuracy",
    "test_loss",
    "fingerprint",
    "finished_at",
    "curves",
    "repetition",
}


def test_report_json_has_every_promised_name(make_run, tmp_path):
    report = json.loads(render([make_run()], tmp_path / "out")["report.json"])
    assert report["schema_version"] == 8
    assert report["current"] == [RUN["fingerprint"]]
    assert set(report["runs"][0]) >= PROMISED
    assert [row["epoch"] for row in report["runs"][0]["curves"]] == [1, 2]


def test_published_rows_hold_the_published_figures():
    figures = [
        (row.requested_device, row.effective_device, row.train_seconds, row.examples_per_second,
         row.test_accuracy) for row in PUBLISHED
    ]  # fmt: skip
    assert figures == [
        ("cpu", "cpu", 167.84, 1489, 0.7242),
        ("gpu", "gpu", 34.66, 7213, 0.7336),
        ("tpu", "cpu", 30.42, 8218, 0.7227),
    ]
    assert all(row.source and row.epochs == 5 for row in PUBLISHED)


def test_published_rates_are_all_images_over_all_seconds():
    for row in PUBLISHED:
        assert round(5 * 50_000 / row.train_seconds) == pytest.approx(row.examples_per_second, abs=1)


def test_published_rows_are_folded_in_a_table_of_their_own(make_run, tmp_path):
    page = render([make_run()], tmp_path / "out")["report.html"]
    board, _, table = page.partition("<summary>Results published elsewhere</summary>")
    assert all(row.scenario not in board for row in PUBLISHED)
    assert "not measured here" in table
    assert all(f"{100 * row.test_accuracy:.2f}%" in table for row in PUBLISHED)
    assert "measured here" in format_table(report_of([tmp_path / "run"], current=[]), width=200)


@pytest.mark.parametrize("other_data", [{}, {"experiment": "cifar10"}])
def test_published_rows_stand_only_beside_runs_of_their_experiment_and_data(make_run, tmp_path, other_data):
    mnist = make_run("mnist", dataset="mnist", requested_dataset="mnist", **other_data)
    files = render([mnist], tmp_path / "out") | {"terminal": format_table(report_of([mnist], current=[]))}
    assert json.loads(files["report.json"])["published"] == []
    assert all("ublished elsewhere" not in text for name, text in files.items())
    other = make_run("other", fingerprint="b" * 64)
    assert len(report_of([mnist, other], current=[]).published) == len(PUBLISHED)


def test_runs_come_newest_first_in_any_order_of_folders(make_run):
    old = make_run("old", fingerprint="b" * 64, finished_at="2026-02-28T23:00:00Z")
    new = make_run("new")
    reports = [build_report(folders, current=[]) for folders in ([old, new], [new, old])]
    assert reports[0] == reports[1]
    assert [run.fingerprint[0] for run in reports[0].runs] == ["a", "b"]


def test_the_same_runs_give_identical_bytes_in_another_process(make_run, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    render([make_run()], here, drawn=True, published=[])
    code = (
        "import sys; from pathlib import Path; from pipeline.report import build_report, write_report; "
        "write_report(build_report([Path(sys.argv[1])], current=['a' * 64]), Path(sys.argv[2]))"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "run", there], check=True, cwd=PROJECT)
    assert all((here / name).read_bytes() == (there / name).read_bytes() for name in NAMES)


def test_a_stand_in_is_declared_loudly(make_run, tmp_path):
    files = render([make_run(dataset="synthetic", dataset_verified=False)], tmp_path / "out")
    assert json.loads(files["report.json"])["runs"][0]["requested_dataset"] == "cifar10"
    marks = {"report.html": '<li class="alarm">', "report.md": "> **Warning: Placeholder data, not CIFAR-10.**"}
    for name, mark in marks.items():
        assert mark in files[name]
        assert "Its numbers are meaningless for CIFAR-10." in files[name]
        assert "placeholder data instead of CIFAR-10" in files[name]


def test_a_stand_in_among_the_other_runs_is_marked_in_its_row(make_run, tmp_path):
    other = make_run("other", dataset="synthetic", dataset_verified=False, fingerprint="b" * 64)
    files = render([make_run(), other], tmp_path / "out")
    assert "meaningless for CIFAR-10" not in files["report.html"]
    assert '<span class="tag alarm">placeholder for CIFAR-10</span>' in files["report.html"]
    assert "(**placeholder for CIFAR-10**)" in files["report.md"]


WARNINGS = [
    ({"dataset_verified": False}, "Data not verified"),
    ({"dataset": "mnist"}, "Not the requested data"),
    ({"requested_device": "tpu"}, "Not the requested device"),
    ({"device_verified": False}, "Device not verified"),
    ({"requested_precision": "float32"}, "Not the requested precision"),
]


@pytest.mark.parametrize(("changes", "headline"), WARNINGS)
def test_each_mismatch_of_the_current_run_gives_one_banner(make_run, tmp_path, changes, headline):
    folder = make_run(**changes)
    files = render([folder], tmp_path / "out")
    assert f"<li><strong>{headline}.</strong>" in files["report.html"]
    assert files["report.html"].count("<li><strong>") == 1
    assert f"> **Warning: {headline}.**" in files["report.md"]
    assert f"WARNING {headline}." in format_table(build_report([folder], current=[RUN["fingerprint"]]))


def test_a_run_that_got_what_it_asked_for_has_no_banner(make_run, tmp_path):
    files = render([make_run(requested_device="cpu", requested_precision="bfloat16")], tmp_path / "out")
    assert 'class="banners"' not in files["report.html"]
    assert "Warning" not in files["report.md"]


def test_the_verdict_says_figures_data_and_device(make_run, tmp_path):
    expected = (
        "baseline_cnn reached 73.8% test accuracy on cifar10 (verified) after 2 epochs and 24.8 s of training on cpu "
        "(AMD EPYC 9B14), at 10,012 images/s."
    )
    folder = make_run()
    files = render([folder], tmp_path / "out")
    assert f'<p class="verdict">{expected}</p>' in files["report.html"]
    assert f"**{expected}**" in files["report.md"]
    table = format_table(build_report([folder], current=[RUN["fingerprint"]]), width=200)
    assert expected in " ".join(table.split())


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({}, "cifar10: 73.8% test accuracy"),
        ({"problem": "next_token", "test_loss": 1.515}, "cifar10: 1.515 nats test loss"),
        ({"experiment": "<b>", "test_accuracy": None}, "&lt;b&gt; – TensorCraft"),
    ],
)
def test_the_title_of_the_page_names_the_experiment_and_its_best_result(make_run, tmp_path, changes, title):
    page = render([make_run(**changes)], tmp_path / "out")["report.html"]
    assert f"<title>{title}" in page
    assert " – TensorCraft</title>" in page
    page = render([make_run("other", experiment="other")], tmp_path / "none", current=[])["report.html"]
    assert "<title>other: 73.8% test accuracy – TensorCraft</title>" in page


def test_the_accuracy_is_that_of_the_test_split_in_every_rendering(make_run, tmp_path):
    folder = write_evaluation(make_run())
    files = render([folder], tmp_path / "out") | {"terminal": format_table(build_report([folder], current=["a" * 64]))}
    files["model-card.md"] = (tmp_path / "out" / "model-card.md").read_text()
    for name, text in files.items():
        said = " ".join(Outline(text).text.split() if name == "report.html" else text.split()).lower()
        if name != "report.json":
            assert "test accuracy" in said, name
        # Said once: what the tutorials call it, and what it means here.
        notes = (
            "published tutorials call it validation accuracy",
            "tutorials of this model call it validation accuracy",
        )
        for note in (*notes, "**validation accuracy**: share", "validation accuracyshare"):
            said = said.replace(note, "")
        assert "validation accuracy" not in said, name
        assert "validation loss" not in said, name


def test_the_accuracy_on_a_split_held_out_of_train_is_shown_beside_that_of_the_test_split(make_run, tmp_path):
    folder = write_evaluation(make_run(validation_accuracy=0.7123))
    files = render([folder], tmp_path / "out")
    sentence = "73.8% test accuracy (71.2% validation accuracy) on cifar10 (verified)"
    assert sentence in files["report.html"]
    assert sentence in files["report.md"]
    assert sentence in " ".join(format_table(build_report([folder], current=[RUN["fingerprint"]])).split())
    assert "<dt>Validation accuracy</dt><dd>71.23%</dd>" in files["report.html"]
    assert "| validation accuracy | 71.23% |" in (tmp_path / "out" / "model-card.md").read_text()


def test_a_row_shows_the_mean_accuracy_on_a_validation_split_where_there_is_one(make_run):
    scenario = build_report([make_run()], current=[]).scenarios[0]
    assert metric(scenario).notes == ()
    assert metric(replace(scenario, validation_accuracy=Spread(0.7123, 0.01))).notes == ("validation 71.23 ± 1.00%",)


def test_the_page_stays_small_with_many_long_runs(make_run, tmp_path):
    curves = [EPOCH | {"epoch": epoch, "loss": 1 / epoch} for epoch in range(1, 1001)]
    folders = [make_run(f"run{n}", curves, fingerprint=f"{n:064x}", epochs=1000) for n in range(8)]
    texts = render(folders, tmp_path / "out", current=[f"{0:064x}"], drawn=True)
    assert len(texts["report.html"].encode()) < 400_000
    assert len(texts["report.md"].splitlines()) <= 120


def test_the_drawing_is_readable_without_seeing_it(make_run, tmp_path):
    outline = Outline(render([make_run()], tmp_path / "out")["report.html"])
    label = next(value for _, name, value in outline.attributes if name == "aria-label" and "by epoch" in value)
    assert "after epoch 2 test accuracy 73.8%" in label
    assert {"figure", "figcaption", "caption"} <= set(outline.tags)
    assert {value for tag, name, value in outline.attributes if (tag, name) == ("th", "scope")} == {"col", "row"}


def test_of_many_runs_the_requested_one_and_the_best_are_drawn(make_run, tmp_path):
    folders = [make_run(f"run{n}", fingerprint=f"{n:x}" * 64, test_accuracy=0.5 + n / 100) for n in range(1, 12)]
    page = render(folders, tmp_path / "out", current=["1" * 64])["report.html"]
    legend = re.search(r'<ul class="legend">.*?</ul>', page, re.DOTALL)[0]
    assert re.findall(r", (\w)\1{7}<", legend) == ["1", "b", "a", "9", "8", "7", "6", "5"]
    assert "Drawn are 8 of 11 runs" in page


def test_figures_that_are_not_finite_become_null_and_a_dash(make_run, tmp_path):
    curves = [EPOCH | {"loss": math.nan, "test_loss": math.inf}]
    folder = make_run(curves=curves, test_loss=math.nan, test_accuracy=None)
    files = render([folder], tmp_path / "out", drawn=True)
    run = json.loads(files["report.json"], parse_constant=pytest.fail)["runs"][0]
    assert [run["test_loss"], run["curves"][0]["loss"], run["curves"][0]["test_loss"]] == [None, None, None]
    assert "– test accuracy" in files["report.md"]
    assert not re.search(r"\b(nan|inf)\b", Outline(files["report.html"]).text.split("</style>")[-1])


@pytest.mark.parametrize("loss", [1e308, 1e38, 2**62, 0])
def test_a_loss_of_any_size_does_not_stop_the_report(make_run, tmp_path, loss):
    curves = [EPOCH | {"loss": loss}, EPOCH | {"epoch": 2**62, "loss": -loss}]
    assert "<svg" in render([make_run(curves=curves)], tmp_path / "out", drawn=True)["report.html"]


def test_a_current_run_that_is_not_among_the_runs_is_refused(make_run):
    with pytest.raises(ValueError, match="current: expected fingerprints"):
        build_report([make_run()], current=["f" * 64])


def test_a_requested_run_that_is_damaged_ends_the_report_with_the_name_of_its_file(make_run):
    folder = make_run(f"cifar10-{'a' * 12}", fingerprint="a" * 64)
    (folder / "metrics.jsonl").write_text("{")
    folders = [make_run(fingerprint="b" * 64), folder]
    with pytest.raises(DamagedArtifactError, match=rf"^{re.escape(str(folder))}/metrics\.jsonl"):
        build_report(folders, current=["a" * 64])
    assert len(build_report(folders, current=["b" * 64]).runs) == 1


def test_no_run_at_all_still_renders(tmp_path):
    files = render([], tmp_path / "out", current=[])
    assert json.loads(files["report.json"])["runs"] == []
    assert all("No run has finished yet." in files[name] for name in ("report.html", "report.md"))
    assert "No run has finished yet." in format_table(build_report([], current=[]))


def test_a_report_about_no_run_in_particular_renders(make_run, tmp_path):
    files = render([make_run()], tmp_path / "out", current=[])
    assert "No run was requested for this report" in files["report.html"]
    assert 'class="tag">requested' not in files["report.html"]


def test_own_data_has_no_banner_that_nothing_could_clear(make_run, tmp_path):
    digests = {"train": "1" * 64, "test": "2" * 64}
    own = {"dataset": "photos", "requested_dataset": "photos", "dataset_verified": False, "content_digests": digests}
    files = render([make_run(**own)], tmp_path / "own")
    for name in ("report.html", "report.md"):
        assert "Data not verified" not in files[name]
        assert "own data, no reference checksum" in files[name]
        assert re.search(f"sha256 of train(</dt><dd>|: ){'1' * 64}", files[name])
    files = render([make_run("altered", dataset_verified=False, content_digests=digests)], tmp_path / "altered")
    assert "The content digest differs from the digest of the original CIFAR-10." in files["report.html"]


@pytest.mark.parametrize(("step_alone", "share"), [(0.0826, 0.0), (0.05, 0.25)])
def test_what_a_step_takes_is_at_least_what_its_parts_take(step_alone, share):
    from pipeline.report.sections.runs import time_rows
    from pipeline.runs.record import TimeBreakdown

    # Timed alone on a machine that has become slower, a step takes longer than in training.
    parts = dict.fromkeys(TimeBreakdown.model_fields) | {
        "step_seconds": 0.0754,
        "step_alone_seconds": step_alone,
        "input_alone_seconds": 0.02,
        "input_wait_share": share,
    }
    rows = dict(time_rows(run_of(time_breakdown=parts)))
    assert rows["Training step"] == "75.40 ms"
    assert rows["Waiting for input per step"] == f"{75.4 * share:.2f} ms, {share:.0%}"
