"""report.html while a run trains: it shows the epochs so far, and a kill leaves a stale report, not a damaged one."""

import contextlib
import json
import logging
import multiprocessing
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from luigi_process import FAST, IN_CHILD, PROJECT, TINY
from report_runs import EPOCH, write_run

from pipeline.artifacts.manifest import check_files, read_manifest
from tasks import report as report_module
from tasks.report import LiveReport
from tasks.stage import Artifact

RELOAD = '<meta http-equiv="refresh"'
REFRESHED_OFTEN = """
from tasks import report as report_module
from tasks.__main__ import main

report_module.REFRESH_SECONDS = 0.1
main()
"""


@pytest.fixture
def report_folder(tmp_path):
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "report.html").write_text("the last report")
    return folder


@pytest.fixture
def training(tmp_path, report_folder, monkeypatch):
    """A function that returns the context manager around a training, and the folder of its run."""
    monkeypatch.setattr(report_module, "REFRESH_SECONDS", 0.02)
    folder = tmp_path / "run"
    folder.mkdir()
    earlier = write_run(tmp_path / "earlier", fingerprint="1" * 64)
    report = SimpleNamespace(
        output=lambda: Artifact(report_folder, {"of": "test"}),
        task_family="Report",
        current=lambda: ["2" * 64, "1" * 64],
        whole_runs=lambda: [(earlier, {"fingerprint": "1" * 64})],
    )
    settings = SimpleNamespace(model="cnn", epochs=7)
    run = SimpleNamespace(experiment_name=lambda: "<b>flowers</b>", place="run 2/3", settings=settings)
    return LiveReport(report, run, folder), folder


def page_with(text: str, folder) -> str:
    """The page, once it has this text."""
    until = time.monotonic() + 300
    while text not in (page := (folder / "report.html").read_text()):
        assert time.monotonic() < until, page
        time.sleep(0.01)
    return page


def finish_epoch(folder, number: int) -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(EPOCH | {"epoch": number}) + "\n")


def test_the_page_shows_each_finished_epoch_and_reloads_itself(training, report_folder):
    live, folder = training
    with live:
        (folder / "tensorboard").mkdir()
        page = page_with("0 of 7 epochs finished", report_folder)
        assert "Training is running. Experiment &lt;b&gt;flowers&lt;/b&gt;, run 2/3, " in page
        assert "The first epoch is not finished yet." in page
        finish_epoch(folder, 1)
        finish_epoch(folder, 2)
        page = page_with("2 of 7 epochs finished", report_folder)
    assert RELOAD in page
    assert "test accuracy 60.0% after epoch 2" in page
    assert "about 64 s" in page, "5 epochs of 12.9 s"


def test_the_scoreboard_of_the_finished_runs_follows(training, report_folder):
    live, folder = training
    with live:
        finish_epoch(folder, 1)
        page = page_with("1 of 7 epochs finished", report_folder)
    assert page.index('id="epochs"') < page.index('id="scoreboard')
    assert page.index('href="#run-111111111111"') < page.index('id="run-111111111111"')
    assert "73.8" in page
    assert '<tr class="current">' in page, "a run of the same sweep"


def test_a_killed_training_leaves_a_valid_report_that_is_not_final(training, report_folder):
    live, folder = training
    with live:
        finish_epoch(folder, 1)
        page_with("Training is running", report_folder)
        manifest = read_manifest(report_folder)
        check_files(report_folder, manifest)
        assert manifest["provisional"] == "report.html shows a training that was not finished"
        # The Report stage takes an artifact of its own run for fresh.
        assert "run_id" not in manifest


def test_a_failed_training_says_so_on_a_page_that_does_not_reload(training, report_folder):
    live, folder = training
    with contextlib.suppress(KeyboardInterrupt), live:
        finish_epoch(folder, 1)
        page_with("Training is running", report_folder)
        raise KeyboardInterrupt
    page = (report_folder / "report.html").read_text()
    assert "Training was not finished. Experiment" in page
    assert "1 of 7 epochs finished" in page
    assert RELOAD not in page


def test_a_training_that_fails_before_its_first_step_keeps_the_report(training, report_folder):
    live, _ = training
    with contextlib.suppress(KeyboardInterrupt), live:
        time.sleep(0.2)
        raise KeyboardInterrupt
    assert [path.name for path in report_folder.iterdir()] == ["report.html"]
    assert (report_folder / "report.html").read_text() == "the last report"


def test_a_page_that_cannot_be_written_is_one_warning_and_the_training_goes_on(training, report_folder, caplog):
    live, folder = training
    (report_folder / "report.html").unlink()
    (report_folder / "report.html").mkdir()
    with caplog.at_level(logging.WARNING), live:
        finish_epoch(folder, 1)
        live.join()
    (record,) = caplog.records
    assert record.getMessage().startswith("report.html does not show this training, because writing it failed: ")


def test_two_trainings_at_once_leave_a_whole_page(training, report_folder, caplog):
    live, folder = training
    finish_epoch(folder, 1)
    context = multiprocessing.get_context("fork")
    ended = context.Event()
    other = context.Process(target=show_until, args=(live, ended))
    other.start()
    with LiveReport(live._report, live._run, folder):
        page_with("Training is running", report_folder)
        for _ in range(300):
            assert (report_folder / "report.html").read_text().rstrip().endswith("</html>")
            time.sleep(0.001)
    ended.set()
    other.join(300)
    assert other.exitcode == 0
    assert not caplog.records


def show_until(live: LiveReport, ended) -> None:
    with live:
        ended.wait()


@pytest.mark.slow
def test_a_real_training_is_shown_then_killed_then_resumed_and_replaced_by_its_report(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    settings = [*FAST, *TINY, "--Train-epochs", "80"]
    command = [sys.executable, "-c", REFRESHED_OFTEN, "Report", *settings]
    report, environment = luigi.root / "report", luigi.environment(IN_CHILD)

    def start() -> subprocess.Popen:
        return subprocess.Popen(command, cwd=PROJECT, env=environment, stderr=subprocess.PIPE, text=True)

    with start() as process:
        while RELOAD not in (page := (report / "report.html").read_text()):
            assert process.poll() is None, process.communicate()[1]
        process.kill()
    assert "Training is running. Experiment cifar10, tests.tiny_model:build, " in page
    assert " of 80 epochs finished" in page
    check_files(report, read_manifest(report))
    status = luigi.status(*settings)["Report"]
    assert (status["state"], status["reasons"]) == ("stale", ["report.html shows a training that was not finished"])
    with start() as process:
        assert process.wait() == 0, process.communicate()[1]
    page = (report / "report.html").read_text()
    assert "Training is running" not in page
    assert RELOAD not in page
    assert luigi.status(*settings)["Report"]["state"] == "fresh"
