"""Dated reports: what a schedule leaves behind, as Luigi makes it and as the commands beside it see it."""

import json
import re
import shutil
from datetime import date, timedelta
from types import SimpleNamespace

import pytest
from luigi.task_register import Register
from luigi_process import FAST
from scheduled import TODAY, days_ago, nightly, noon  # noqa: F401

from pipeline.artifacts.manifest import read_manifest, write_manifest
from pipeline.artifacts.publish import publishing_in_place
from pipeline.errors import DamagedArtifactError
from tasks.report import (
    publish_dated_report,
    read_dated_report,
    read_dated_reports,
    referred_runs,
)

# The date must not change while the tests run.
pytestmark = pytest.mark.usefixtures("noon")


def write_report(folder, *runs: str, text: str = "report"):
    with publishing_in_place(folder) as temporary:
        (temporary / "report.html").write_text(text)
        write_manifest(temporary, stage="Report", identity={"upstream": {"current": list(runs)}}, details={})
    return folder


def test_a_dated_report_is_a_copy_that_a_newer_report_leaves_alone(tmp_path):
    report = write_report(tmp_path / "report", "a", text="old")
    kept = publish_dated_report(report / "history", date(2026, 10, 31), report)
    write_report(report, "b", text="new")
    assert read_dated_report(kept.folder) == kept
    assert (kept.folder / "report.html").read_text() == "old"
    assert kept.runs == ("a",)


def test_links_of_a_dated_report_lead_to_the_runs(tmp_path):
    (tmp_path / "runs" / "a").mkdir(parents=True)
    report = write_report(tmp_path / "report", "a", text='<a href="../runs/a/">href="../</a>')
    for history in (report / "history", report / "history" / "flowers"):
        folder = publish_dated_report(history, date(2026, 11, 1), report).folder
        link = (folder / "report.html").read_text().split('"')[1]
        assert (folder / link).resolve() == tmp_path / "runs" / "a"


def test_the_runs_that_reports_are_about_are_known(tmp_path):
    report = write_report(tmp_path / "report", "a", "b")
    publish_dated_report(report / "history", date(2026, 11, 1), report)
    write_report(report, "c")
    publish_dated_report(report / "history" / "flowers", date(2026, 11, 1), report)
    assert referred_runs(report / "history") == {"a", "b", "c"}


def test_a_report_that_is_not_valid_is_not_kept(tmp_path):
    report = write_report(tmp_path / "report", "a")
    (report / "report.html").write_text("torn")
    with pytest.raises(DamagedArtifactError, match=r"report\.html"):
        publish_dated_report(report / "history", date(2026, 11, 1), report)
    assert read_dated_reports(report / "history") == []


def test_a_copy_under_another_date_is_damage(tmp_path):
    report = write_report(tmp_path / "report", "a")
    kept = publish_dated_report(report / "history", date(2026, 11, 1), report)
    shutil.copytree(kept.folder, kept.folder.with_name("2026-11-02"))
    assert read_dated_reports(report / "history") == [kept]
    with pytest.raises(DamagedArtifactError, match="expected the report of 2026-11-02, got '2026-11-01'"):
        read_dated_report(kept.folder.with_name("2026-11-02"))


def test_a_folder_without_a_date_is_no_dated_report(tmp_path):
    report = write_report(tmp_path / "report", "a")
    kept = publish_dated_report(report / "history", date(2026, 11, 1), report)
    for name in ("2026-notes.txt", "20261102", "2026-11-31", ".DS_Store"):
        (kept.folder.with_name(name)).write_text("mine")
    kept.folder.with_name("2026-11-01 (copy)").mkdir()
    kept.folder.with_name("2026-11-02").mkdir()
    assert read_dated_reports(report / "history") == [kept]


def test_a_range_of_dates_is_checked_by_one_look_at_each(tmp_path, monkeypatch):
    from tasks import Nightly, nightly

    report = write_report(tmp_path / "report", "a")
    days = [date(2025, 11, 1) + timedelta(days=n) for n in range(12)]
    for day in days[:-1]:
        publish_dated_report(report / "history", day, report)
    monkeypatch.setattr(nightly, "history_folder", lambda: report / "history")
    read = []
    monkeypatch.setattr("tasks.report.read_manifest", lambda folder: read.append(folder) or read_manifest(folder))
    assert Nightly.bulk_complete(days) == days[:-1]
    assert len(read) == len(days) - 1


def test_a_range_asks_again_for_dates_that_another_gate_has_passed(tmp_path, monkeypatch):
    from tasks import Nightly, nightly

    report = write_report(tmp_path / "report", "a")
    days = [date(2026, 11, day) for day in (1, 2)]
    for day, demanded in zip(days, (0.5, 0.75), strict=True):
        publish_dated_report(report / "history", day, report, thresholds={"min_test_accuracy": demanded})
    monkeypatch.setattr(nightly, "history_folder", lambda: report / "history")
    assert Nightly.bulk_complete(days) == days, "there is no gate"
    monkeypatch.setattr(nightly.Report, "thresholds", lambda self: {"min_test_accuracy": 0.75})
    assert Nightly.bulk_complete(days) == days[1:]


@pytest.fixture
def dated(tmp_path, monkeypatch):
    """The task of a date, with thresholds that a test sets, and the locks that it takes."""
    from tasks import Nightly, nightly

    monkeypatch.setattr(nightly, "history_folder", lambda: tmp_path / "report" / "history")
    # Luigi returns the same object for the same parameters.
    Register.clear_instance_cache()
    task, locks = Nightly(date=TODAY), []
    monkeypatch.setattr(nightly.lock, "hold", lambda *_, **__: locks.append("held"))
    task.report = SimpleNamespace(thresholds=lambda: task.required)
    task.required, task.locks, task.source = {}, locks, write_report(tmp_path / "report", "a")
    yield task
    Register.clear_instance_cache()


def publish_judged(task, **thresholds: float) -> None:
    publish_dated_report(task.folder.parent, task.date, task.source, thresholds=thresholds)


def test_a_date_without_a_report_is_not_complete_and_locks_the_root(dated, caplog):
    assert not dated.complete()
    assert (dated.locks, caplog.messages) == (["held"], [])


@pytest.mark.parametrize("required", [{}, {"min_test_accuracy": 0.5}])
def test_a_date_with_its_report_is_complete_and_locks_nothing(dated, required):
    publish_judged(dated, min_test_accuracy=0.5)
    dated.required = required
    assert dated.complete()
    assert dated.locks == []


def test_a_date_is_checked_again_once_if_the_thresholds_changed(dated, caplog):
    caplog.set_level("INFO")
    publish_judged(dated, min_test_accuracy=0.5)
    dated.required = {"min_test_accuracy": 0.75}
    assert not dated.complete()
    assert (dated.locks, len(caplog.messages)) == (["held"], 1)
    assert "checking the report again, because the thresholds changed" in caplog.text
    dated._is_judged = True
    assert dated.complete()


def test_a_damaged_report_is_not_complete_although_it_was_checked(dated, caplog):
    publish_judged(dated)
    (dated.folder / "report.html").write_text("torn")
    dated._is_judged = True
    assert not dated.complete()
    assert dated.locks == ["held"]
    assert "report.html: expected 6 bytes, got 4" in caplog.text


def test_a_past_date_is_complete_although_its_report_is_damaged(dated, caplog, monkeypatch):
    dated.folder.mkdir(parents=True)
    monkeypatch.setattr("tasks.nightly.is_past", lambda day: day == dated.date)
    assert dated.complete()
    assert (dated.locks, caplog.messages) == ([], [])


@pytest.fixture
def luigi(first_run, tmp_path):
    return first_run.copy(tmp_path / "nightly")


@pytest.fixture(scope="module")
def backfilled(first_run, tmp_path_factory):
    """A root with the dated reports of five days, and what the command for the range wrote."""
    luigi = first_run.copy(tmp_path_factory.mktemp("backfilled"))
    assert nightly(luigi, "--date", days_ago(3)).returncode == 0
    return luigi, nightly(luigi, "--of", "Nightly", "--start", days_ago(4), task="RangeDaily")


@pytest.mark.slow
def test_a_date_gets_its_report_and_a_second_time_there_is_nothing_to_do(luigi):
    runs = luigi.artifacts("runs")
    done = nightly(luigi, "--date", days_ago(3))
    assert done.returncode == 0, done.stderr
    folder = luigi.root / "report" / "history" / days_ago(3)
    for name in ("report.md", "report.json"):
        assert (folder / name).read_bytes() == (luigi.root / "report" / name).read_bytes()
    links = re.findall(r'href="(\.\./[^"]*)"', (folder / "report.html").read_text())
    assert links
    assert all((folder / link).exists() for link in links), "the links to runs lead there from this folder too"
    assert luigi.artifacts("runs") == runs, "its inputs are those of the run there was"
    again = nightly(luigi, "--date", days_ago(3))
    assert again.returncode == 0
    assert f"Nightly {days_ago(3)}: nothing to do, the report exists" in again.stderr


@pytest.mark.slow
def test_a_date_that_has_its_report_is_judged_by_a_gate_that_did_not_judge_it(luigi, tmp_path):
    other = luigi.copy(tmp_path)
    runs = other.artifacts("runs")
    date = ["--date", TODAY.isoformat()]
    assert nightly(other, *date).returncode == 0
    for _ in range(2):
        strict = nightly(other, *date, "--Report-min-test-accuracy", "1.0")
        assert strict.returncode == 9, strict.stderr
        assert "checking the report again" in strict.stderr
        assert "ERROR GateError: " in strict.stderr
    passed = [nightly(other, *date, "--Report-min-test-accuracy", "0.01") for _ in range(2)]
    assert [done.returncode for done in passed] == [0, 0], passed[0].stderr
    assert [f"{TODAY}: nothing to do, the report exists.\n" in done.stderr for done in passed] == [False, True], (
        "judged once"
    )
    assert read_dated_report(other.root / "report" / "history" / TODAY.isoformat()).thresholds == {
        "min_test_accuracy": 0.01
    }
    assert other.artifacts("runs") == runs


@pytest.mark.slow
def test_a_range_of_dates_is_judged_by_a_gate_that_did_not_judge_them(luigi, tmp_path):
    other = luigi.copy(tmp_path)
    publish_dated_report(other.root / "report" / "history", TODAY - timedelta(days=1), other.root / "report")
    days = ["--of", "Nightly", "--start", days_ago(1), "--stop", days_ago(0)]
    strict = nightly(other, *days, "--Report-min-test-accuracy", "1.0", task="RangeDaily")
    assert strict.returncode == 9, strict.stderr
    assert nightly(other, *days, "--Report-min-test-accuracy", "0.01", task="RangeDaily").returncode == 0
    assert read_dated_report(other.root / "report" / "history" / days_ago(1)).thresholds == {"min_test_accuracy": 0.01}


@pytest.mark.slow
def test_a_past_date_keeps_its_own_report_where_other_runs_are_judged(luigi, tmp_path):
    other = luigi.copy(tmp_path)
    folder = publish_dated_report(
        other.root / "report" / "history", TODAY - timedelta(days=9), other.root / "report"
    ).folder
    manifest = read_manifest(folder)
    (folder / "manifest.json").unlink()
    (folder / "verified.json").unlink()
    identity = {**manifest["identity"], "runs": ["gone"]}
    write_manifest(folder, stage="Nightly", identity=identity, details={})
    done = nightly(other, "--date", days_ago(9), "--Report-min-test-accuracy", "0.01")
    assert done.returncode == 0, done.stderr
    assert "keeping the report of that date" in done.stderr
    assert read_dated_report(folder).runs == ("gone",)
    strict = nightly(other, "--date", days_ago(9), "--Report-min-test-accuracy", "1.0")
    assert strict.returncode == 9, strict.stderr


@pytest.mark.slow
def test_the_run_of_today_warns_if_recent_predictions_differ_from_the_test_split(luigi, tmp_path):
    other = luigi.copy(tmp_path)
    (run,) = other.artifacts("runs")
    (other.root / "watched" / run).mkdir(parents=True)
    day = other.root / "watched" / run / f"{TODAY}.json"
    day.write_text(json.dumps({"counts": {"label": {"ship": 500}}}))
    past, present = (nightly(other, "--date", days_ago(days)) for days in (1, 0))
    assert (past.returncode, present.returncode) == (0, 0), present.stderr
    said = f"{run}: predictions of the last 7 days differ from the test split in label"
    assert [said in done.stderr for done in (past, present)] == [False, True]


@pytest.mark.slow
def test_missing_dates_are_backfilled_and_nothing_is_trained_twice(backfilled, first_run):
    luigi, done = backfilled
    assert done.returncode == 0, done.stderr
    assert sorted(luigi.artifacts("report/history")) == [days_ago(n) for n in (4, 3, 2, 1, 0)]
    assert luigi.artifacts("runs") == first_run.artifacts("runs")
    assert "Every stage is fresh." in done.stderr
    assert "Nothing to do." not in done.stderr
    before = luigi.artifacts("report/history")
    assert nightly(luigi, "--of", "Nightly", "--start", days_ago(4), task="RangeDaily").returncode == 0
    assert luigi.artifacts("report/history") == before


@pytest.mark.slow
def test_a_bad_setting_is_refused_under_a_range_too(luigi):
    done = nightly(luigi, "--of", "Nightly", "--start", days_ago(9), "--Train-training-recipe", "x", task="RangeDaily")
    assert done.returncode == 2
    assert "[Train] training_recipe: expected auto, or one of" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_date_to_come_is_refused(luigi):
    done = nightly(luigi, "--date", days_ago(-1))
    assert done.returncode == 2
    assert "[Nightly] date: expected a date up to" in done.stderr


@pytest.mark.slow
def test_a_damaged_copy_is_named_and_made_again(backfilled, tmp_path):
    other = backfilled[0].copy(tmp_path)
    folder = other.root / "report" / "history" / days_ago(3)
    (folder / "report.md").write_text("mine")
    done = nightly(other, "--date", days_ago(3))
    assert done.returncode == 0, done.stderr
    assert "report.md: expected " in done.stderr
    assert read_dated_report(folder).date.isoformat() == days_ago(3)


@pytest.mark.slow
def test_the_commands_know_the_dated_copies(backfilled, tmp_path):
    other = backfilled[0].copy(tmp_path)
    lines = other.command("verify").stdout.splitlines()
    assert sum("report/history" in line and line.startswith("valid") for line in lines) == 5
    # The one run is not what these settings ask for, but dated reports are about it.
    settings = [*FAST[2:], "--Train-epochs", "2"]
    assert other.command("clean-stale", "--yes", *settings).returncode == 0
    assert len(other.artifacts("runs")) == 1
    shutil.rmtree(other.root / "report" / "history")
    assert other.command("clean-stale", "--yes", *settings).returncode == 0
    assert len(other.artifacts("runs")) == 0


@pytest.mark.slow
def test_the_manifest_of_a_dated_report_is_small_and_says_what_it_is_of(backfilled):
    luigi, _ = backfilled
    path = luigi.root / "report" / "history" / days_ago(3)
    manifest = read_manifest(path)
    assert manifest["identity"]["runs"] == luigi.report()["current"]
    assert (path / "manifest.json").stat().st_size < 4096
