"""A report about several runs: what every rendering says of a sweep, and a whole sweep from end to end."""

import json
import re
import shutil
import statistics
from functools import partial

import pytest
from luigi_process import FAST, TINY
from report_history_entries import entry
from report_runs import (
    EPOCH,
    MISMATCH,
    NAMES,
    RUN,
    SKIPPED,
    foreign,
    render,
    report_of,
    run_of,
    scoreboard_of,
    write_origin,
)

from pipeline.artifacts.manifest import write_manifest
from pipeline.runs.metrics import read_metrics
from pipeline.runs.record import STAGE_PHASES


def setup_module() -> None:
    global COLORS, Chart, build_report, compare_runs, draw, plot_history, format_table, seconds_by_part
    from pipeline.report import build_report, compare_runs, format_table
    from pipeline.report.blocks import Chart
    from pipeline.report.drawings import COLORS, draw, plot_history
    from pipeline.report.sections.runs import seconds_by_part


DIGESTS = {"train": "1" * 64, "test": "2" * 64}
GPU = {"effective_device": "gpu", "device_name": "H200", "hostname": "other", "examples_per_second": 30037.2}
HOSTILE = "<script>alert(1)</script> | [x](http://evil.example) \x1b[31m"


@pytest.fixture
def sweep(make_run):
    """Folders and fingerprints of runs on CPU and GPU at two batches with two seeds each."""
    folders, fingerprints = [], []
    for device in ({}, GPU):
        for size in (128, 256):
            for seed in (0, 1):
                fingerprint = f"{len(folders):064x}"
                more = {"content_digests": DIGESTS, "steps_per_epoch": 51200 // size, "train_seconds": 24.0 + seed}
                changes = {"fingerprint": fingerprint, "global_batch_size": size, "seed": seed} | more
                folders.append(write_origin(make_run(f"run{len(folders)}", **device, **changes)))
                fingerprints.append(fingerprint)
    return folders, fingerprints


def test_every_rendering_shows_means_and_speed_ups(sweep, tmp_path):
    folders, fingerprints = sweep
    files = render(folders, tmp_path / "out", current=fingerprints)
    table = format_table(report_of(folders, current=fingerprints))
    for text in (files["report.html"], files["report.md"], table):
        words = " ".join(text.split())
        assert "8 of 8 requested runs finished. In the best row, baseline_cnn reached 73.8 ± 0.0% test" in words
        assert "24.50" in text
        assert "± 0.71" in text
    for text in (files["report.html"], files["report.md"]):
        assert "3.00 ×" in text
    assert max(map(len, table.splitlines())) <= 100
    of_one_row = format_table(report_of(folders[:2], current=fingerprints[:2]))
    assert of_one_row.startswith("\nbaseline_cnn reached 73.8 ± 0.0% test accuracy over 2 seeds on cifar10")


def test_runs_that_override_their_recipe_say_so(make_run):
    overrides = {"learning_rate": 0.002, "label_smoothing": 0.0}
    folders = [
        make_run("own", fingerprint="1" * 64, content_digests=DIGESTS),
        make_run("other", fingerprint="2" * 64, content_digests=DIGESTS, **overrides),
    ]
    rows = scoreboard_of(folders, ["1" * 64], published=[])
    # A run without overrides has the values of its recipe.
    assert sorted(row["learning rate"] for row in rows) == ["0.002", "recipe"]
    assert sorted(row["label smoothing"] for row in rows) == ["0", "recipe"]
    assert not [row for row in rows if "weight decay" in row]


def test_a_sweep_is_drawn_on_a_page_that_still_loads_nothing(sweep, tmp_path):
    page = render(sweep[0], tmp_path / "out", current=sweep[1], drawn=True)["report.html"]
    assert len(re.findall('<div class="panels[ a-z]*" role="img"', page)) == 3, "curves, sweeps and history"
    assert not [
        word for word in ("<script", "http://", "https://", "url(") if word in foreign(page).replace("url(#", "")
    ]


def test_each_run_can_be_unfolded_and_requested_runs_have_all_details(sweep, tmp_path):
    folders, fingerprints = sweep
    files = render(folders, tmp_path / "out", current=fingerprints[:3])
    page = files["report.html"]
    assert page.count('<details class="run"') == 8
    assert page.count("Requested and effective</h3>") in (3, 4), "the requested runs, and the best one"
    report = json.loads(files["report.json"])
    assert len(report["runs"]) == 8
    assert report["current"] == fingerprints[:3]


def test_of_many_requested_runs_the_first_have_all_details(make_run, tmp_path):
    fingerprints = [f"{n:x}".ljust(64, "0") for n in range(16, 46)]
    folders = [make_run(f"run{n}", fingerprint=name, seed=n) for n, name in enumerate(fingerprints)]
    page = render(folders, tmp_path / "out", current=fingerprints)["report.html"]
    assert page.count('<details class="run"') == 30
    assert page.count("Requested and effective</h3>") == 24


def test_a_skipped_run_is_a_row_with_its_reason_and_no_figures(make_run, tmp_path):
    folder = make_run(requested_device="tpu", curves=[], **SKIPPED)
    files = render([folder], tmp_path / "out")
    table = format_table(build_report([folder], current=[RUN["fingerprint"]]), width=200)
    for text in (files["report.html"], files["report.md"], table):
        assert "The run on tpu was skipped: no TPU answers." in text
        assert "no TPU answers. Start on a TPU VM." in text
        assert "skipped: no TPU answers" in text
    row = next(line for line in files["report.md"].splitlines() if "**requested:**" in line)
    assert "no TPU answers" in row
    assert "<svg" not in files["report.html"]


def test_a_fallback_is_said_with_cause_and_remedy_and_verified_as_the_device_that_was_used(make_run, tmp_path):
    other = make_run("other", fingerprint="b" * 64, requested_device="cpu")
    folder = make_run(requested_device="tpu", on_mismatch="fallback", mismatch=MISMATCH)
    files = render([folder], tmp_path / "out")
    assert "no TPU answers. Start on a TPU VM." in files["report.md"]
    assert ' class="no">yes, as cpu</td>' in files["report.html"]
    assert "| Device | tpu | cpu, AMD EPYC 9B14 | yes, as cpu |" in files["report.md"]
    (row,) = scoreboard_of([folder], published=[])
    assert row["device verified"] == "yes, as cpu"
    assert "fallback from tpu" in row["run"]
    differences = {one.name: (one.first, one.second) for one in compare_runs(folder, other)}
    assert differences["device_verified"] == ("yes, as cpu", "yes")


def test_a_device_that_nothing_verified_is_not_verified_as_another(make_run, tmp_path):
    folder = make_run(requested_device="tpu", on_mismatch="fallback", mismatch=MISMATCH, device_verified=False)
    files = render([folder], tmp_path / "out")
    assert "| Device | tpu | cpu, AMD EPYC 9B14 | no |" in files["report.md"]


def test_a_sweep_of_one_epoch_has_no_empty_charts(make_run, tmp_path):
    folders = [
        make_run(f"run{size}", [EPOCH], fingerprint=f"{size:064x}", epochs=1, global_batch_size=size,
                 content_digests=DIGESTS, steps_per_epoch=390)
        for size in (128, 256)
    ]  # fmt: skip
    page = render(folders, tmp_path / "out", current=[f"{size:064x}" for size in (128, 256)])["report.html"]
    section = page.partition('<h2 id="curves">')[2].partition("</section>")[0]
    assert "panels" not in section
    assert section.count("after epoch 1 test accuracy 60.0%") == 2


def test_what_is_left_out_is_counted_in_the_singular_too(make_run, tmp_path):
    past = [
        entry(n, 0.7, training_recipe=training_recipe, finished_at=f"2026-02-0{n + 1}T10:00:00+00:00")
        for n, training_recipe in enumerate(("onecycle", "onecycle", "baseline"))
    ]
    page = render([make_run()], tmp_path / "out", past=past)["report.html"]
    assert "1 more group in report.json." in page


def test_the_history_joins_no_runs_of_different_seeds():
    entries = [entry(n, 0.7 + 0.01 * n, seed=n % 2, finished_at=f"2026-02-0{n + 1}T10:00:00+00:00") for n in range(6)]
    drawing = draw(Chart("history", partial(plot_history, [entries]))).svg
    lines = re.findall(r'<path d="([^"]*)"[^>]*fill: none; stroke: var\(--run-1\); stroke-width: 1.2', drawing)
    assert [line.count("L") for line in lines] == [2, 2, 2, 2], "two seeds of three runs each, in two panels"


def segment(first_epoch, last_epoch, hostname):
    return {
        "first_epoch": first_epoch,
        "last_epoch": last_epoch,
        "hostname": hostname,
        "device_verified": True,
        "receipt": None,
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"segments": [segment(1, 1, "bench"), segment(2, 2, "other")]}, "resumed on host other from epoch 2"),
        (
            {"epochs": 6, "segments": [segment(epoch, epoch, f"host{epoch}") for epoch in range(1, 7)]},
            "resumed on host host2 from epoch 2, on host host3 from epoch 3, on host host4 from epoch 4",
        ),
        # No epoch was left to train.
        (
            {"segments": [segment(1, 2, "bench")], "epochs": 2, "epochs_restored": 2, "finished_on": "other"},
            "resumed on host other after the last epoch",
        ),
        # A record of an earlier version.
        ({"epochs_restored": 1}, "resumed from epoch 2"),
    ],
)
def test_that_a_run_was_resumed_is_said_with_where_and_from_which_epoch(make_run, changes, words):
    assert words in scoreboard_of([make_run(**changes)], published=[])[0]["run"]
    (row,) = scoreboard_of([make_run("whole", segments=[segment(1, 2, "bench")])], published=[])
    assert "resumed" not in row["run"]


def test_a_warning_that_holds_for_many_runs_is_given_once(make_run, tmp_path):
    folders = [
        make_run(f"run{n}", fingerprint=f"{n:064x}", seed=n, requested_device="tpu", mismatch=MISMATCH)
        for n in range(3)
    ]
    page = render(folders, tmp_path / "out", current=[f"{n:064x}" for n in range(3)])["report.html"]
    assert page.count("<li><strong>") == 1


BREAKDOWN = {
    "step_seconds": 0.031,
    "step_alone_seconds": 0.021,
    "input_alone_seconds": 0.011,
    "input_wait_share": 0.31,
    "compilation_seconds": None,
    "evaluation_seconds": 1.25,
    "checkpoint_seconds": 0.4,
}


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.31, "input-bound: 31% of each step was spent waiting for input"),
        (0.11, "input-bound: 11% of each step was spent waiting for input"),
        (0.1, "compute-bound: 10% of each step was spent waiting for input"),
        (0.0, "compute-bound: 0% of each step was spent waiting for input"),
    ],
)
def test_where_the_time_went_is_said_in_words(make_run, tmp_path, share, words):
    files = render([make_run(time_breakdown=BREAKDOWN | {"input_wait_share": share})], tmp_path / "out")
    assert f'<p class="finding">{words}. ' in files["report.html"]
    assert f"\n- {words}. " in files["report.md"]
    assert "<dd>31.00 ms</dd>" in files["report.html"]


def test_the_drawing_of_the_time_holds_every_part_of_the_stage():
    parts = {f"{part}_seconds": 1.0 + place for place, part in enumerate(STAGE_PHASES)}
    total = sum(parts.values())
    run = run_of(train_seconds=parts["training_seconds"], time_breakdown=BREAKDOWN | parts)
    assert sum(seconds for _, seconds in seconds_by_part(run)) == pytest.approx(total)
    assert len(seconds_by_part(run)) <= len(COLORS), "each needs its own"


@pytest.mark.parametrize(
    ("compilation", "share", "expected"),
    [
        (2.0, 0.25, {"computing": 6.0, "waiting for input": 2.0, "compilation": 2.0}),
        (None, 0.25, {"computing and compilation": 7.5, "waiting for input": 2.5}),
        (2.0, None, {"computing, including waiting": 8.0, "compilation": 2.0}),
        (None, None, {"computing and compilation, including waiting": 10.0}),
    ],
)
def test_a_part_of_training_that_is_not_known_is_not_drawn_as_none_at_all(compilation, share, expected):
    parts = {f"{part}_seconds": 1.0 for part in STAGE_PHASES}
    parts |= {"compilation_seconds": compilation, "input_wait_share": share}
    found = seconds_by_part(run_of(train_seconds=10.0, time_breakdown=BREAKDOWN | parts))
    assert dict(found[: len(expected)]) == expected
    assert found[len(expected)][0] == "evaluation"


def test_a_run_of_one_epoch_states_no_step_of_training(make_run, tmp_path):
    parts = BREAKDOWN | {"step_seconds": None, "input_wait_share": None}
    files = render([make_run(time_breakdown=parts)], tmp_path / "out")
    assert "<dt>Training step</dt><dd>–</dd>" in files["report.html"]


def test_a_step_that_was_not_timed_is_said_with_the_reason(make_run, tmp_path):
    reason = "a step took 5.1 s, too long to repeat it"
    files = render([make_run(time_breakdown=BREAKDOWN | {"not_measured": reason})], tmp_path / "out")
    assert reason in files["report.html"]


def test_what_was_not_measured_is_no_verdict(make_run, tmp_path):
    files = render([make_run(time_breakdown=BREAKDOWN | {"input_wait_share": None})], tmp_path / "out")
    assert "Time breakdown" in files["report.html"]
    assert '<p class="finding">' not in files["report.html"]
    assert "-bound" not in files["report.html"].split("Glossary")[0]


def test_receipt_and_memory_are_shown_whatever_they_hold(make_run, tmp_path):
    receipt = {
        "failed_checks": ["probe: slow"],
        "probe": {"matmul": [1.5, None, True]},
        HOSTILE: HOSTILE,
        "many": list(range(500)),
    }
    memory = {"peak_host_bytes": 1_234_000_000, "peak_device_bytes": None}
    files = render([make_run(receipt=receipt, **memory)], tmp_path / "out")
    page, text = files["report.html"], files["report.md"]
    assert "<dt>probe / matmul / 1</dt><dd>1.5</dd>" in page
    assert "<dt>probe / matmul / 3</dt><dd>yes</dd>" in page
    assert "<dt>failed_checks / 1</dt><dd>probe: slow</dd>" in page
    assert "405 more lines in report.json" in page
    assert "host 1,234 MB, device –" in page
    for content in (foreign(page), text):
        assert "<script" not in content
        assert "\x1b" not in content


@pytest.mark.parametrize("size", [0, 2**62])
def test_a_batch_of_any_size_does_not_stop_the_drawing(make_run, tmp_path, size):
    folders = [
        make_run(f"run{n}", fingerprint=f"{n:064x}", content_digests=DIGESTS, global_batch_size=batch)
        for n, batch in enumerate((size, 128))
    ]
    page = render(folders, tmp_path / "out", current=[], drawn=True)["report.html"]
    assert len(re.findall('<div class="panels[ a-z]*" role="img"', page)) == 2


@pytest.mark.slow
def test_a_sweep_over_batches_and_seeds_ends_in_tables_that_agree_with_the_runs(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    arguments = ["--Train-epochs", "3", *FAST[4:], *TINY, "--global-batch-sizes", "[32,64]", "--seeds", "[0,1]"]
    done = luigi.here("tasks", "Report", *arguments)
    assert done.returncode == 0, done.stderr
    report = luigi.report()
    runs = {
        record["fingerprint"]: (record, read_metrics(path.parent / "metrics.jsonl"))
        for path in luigi.root.glob("runs/*/run.json")
        for record in [json.loads(path.read_text())]
    }
    asked_for = [runs[name][0] for name in report["current"]]
    order = [(record["global_batch_size"], record["seed"]) for record in asked_for]
    assert order == [(32, 0), (32, 1), (64, 0), (64, 1)]

    records = {row["run"]: runs[row["run"]][0] for row in report["scenarios"]}
    rows = {
        records[row["run"]]["global_batch_size"]: row
        for row in report["scenarios"]
        if records[row["run"]]["epochs"] == 3
    }
    assert set(rows) == {32, 64}
    for size, row in rows.items():
        mine = [runs[name] for name in report["current"] if runs[name][0]["global_batch_size"] == size]
        assert row["runs"] == [record["fingerprint"] for record, _ in sorted(mine, key=lambda pair: pair[0]["seed"])]
        for name in ("train_seconds", "examples_per_second", "test_accuracy"):
            figures = [record[name] for record, _ in mine]
            assert row[name]["mean"] == pytest.approx(statistics.mean(figures))
            assert row[name]["deviation"] == pytest.approx(statistics.stdev(figures))
        seconds = [(metrics[1]["train_seconds"] + metrics[2]["train_seconds"]) / 2 for _, metrics in mine]
        assert row["epoch_seconds"]["mean"] == pytest.approx(statistics.mean(seconds))
    assert {row["speedup"]["words"] for row in rows.values()} == {"no other hardware to compare with"}
    assert all((luigi.root / "report" / name).is_file() for name in NAMES)

    assert "Nothing to do" in luigi.here("tasks", "Report", *arguments).stderr
    states = luigi.status(*arguments)
    assert list(states)[2:6] == [f"Train global_batch_size {size}, seed {seed}" for size, seed in order]
    assert {state["state"] for state in states.values()} == {"fresh"}

    # One of these runs as another machine would have made it, copied here.
    original = next(luigi.root.glob(f"runs/*{report['current'][0][:12]}"))
    copy = shutil.copytree(original, original.with_name("from-elsewhere"))
    record = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps(record | {"hostname": "elsewhere", "examples_per_second": 1e9}))
    identity = json.loads((copy / "manifest.json").read_text())["identity"]
    # The manifest would list the stamps of the original.
    for name in ("manifest.json", "verified.json"):
        (copy / name).unlink(missing_ok=True)
    write_manifest(copy, stage="Train", identity=identity, details={})
    assert luigi.here("tasks", "Report", *arguments).returncode == 0
    first, second = report["current"][:2]
    assert [first, first, second] in [row["runs"] for row in luigi.report()["scenarios"]]
    shutil.rmtree(copy)

    stale = luigi.command("clean-stale", *arguments)
    assert "in 1 artifact, none removed" in stale.stdout, "only the run of another number of epochs"
