"""What a schedule leaves behind is bounded, and nothing that is still of use is removed."""

import json
import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from luigi_process import FAST
from report_runs import RUN, SKIPPED
from scheduled import days_ago, nightly

from pipeline.artifacts.manifest import FETCHED_NAME, read_manifest, seal, write_fetched, write_manifest
from pipeline.runs.record import RunRecord
from pipeline.settings.report import SWEPT
from tasks import remote_cache, retention
from tasks.report import DatedReport
from tasks.retention import Artifact, read_artifacts, superfluous_runs

NOW = datetime(2026, 11, 21, 2, tzinfo=UTC)


def runs_under(root: Path) -> list[Artifact]:
    return [artifact for artifact in read_artifacts(root) if artifact.record]


def run(
    name: str,
    days: float,
    accuracy: float | None = 0.5,
    experiment: str = "cifar10",
    **record: object,
) -> Artifact:
    finished_at = (NOW - timedelta(days=days)).isoformat()
    content = RunRecord(**RUN | {"test_accuracy": accuracy, "finished_at": finished_at} | record)
    about = {"experiment": experiment, "here_since": NOW, "provides": name, "needs": frozenset()}
    return Artifact(folder=Path(name), record=content, **about)


RUNS = [
    run("skipped", 0, None, **SKIPPED),
    run("newest", 1),
    run("second", 2),
    run("third", 3),
    run("best", 40, 0.9),
    run("old", 50),
    run("best-of-mnist", 60, 0.99, "mnist"),
]


@pytest.mark.parametrize(
    ("limits", "going"),
    [
        ({}, set()),
        ({"keep_days": 30}, {"old"}),
        ({"keep_runs": 3}, {"third", "old"}),
        ({"keep_runs": 1}, {"second", "third", "old"}),
        ({"keep_runs": 3, "keep_days": 2}, {"third", "old"}),
        # Where the limits differ, what one of them keeps stays.
        ({"keep_runs": 1, "keep_days": 30}, {"old"}),
        ({"keep_runs": 6, "keep_days": 1}, set()),
        ({"keep_runs": 4, "keep_days": 1}, {"old"}),
    ],
)
def test_runs_beyond_every_limit_are_removed_except_the_best_and_the_newest(limits, going):
    limits = {"keep_runs": 0, "keep_days": 0, **limits}
    assert {path.name for path in superfluous_runs(RUNS, **limits, now=NOW)} == going


def test_the_newest_are_counted_for_each_experiment_and_each_row_of_it():
    sweep = [run(f"{row}-{days}", days, global_batch_size=row) for days in (4, 5, 6) for row in (256, 512, 1024)]
    other = [run(f"mnist-{days}", days, experiment="mnist") for days in (1, 2, 3)]
    going = superfluous_runs([*sweep, *other], keep_runs=2, keep_days=0, now=NOW)
    assert {path.name for path in going} == {"256-6", "512-6", "1024-6", "mnist-3"}


def test_a_row_is_what_a_sweep_varies_but_its_seed():
    def is_of_one_row(**changes: object) -> bool:
        return (
            len(superfluous_runs([run("a", 0), run("b", 2, **changes), run("c", 1)], keep_runs=2, keep_days=0, now=NOW))
            == 1
        )

    assert is_of_one_row(seed=7, on_mismatch="skip")
    swept = {
        "requested_backend": "jax",
        "requested_device": "gpu",
        "global_batch_size": 256,
        "requested_precision": "float32",
        "training_recipe": "baseline",
        "learning_rate": 0.5,
    }
    assert {name.removeprefix("requested_") for name in swept} == {*SWEPT.values()} - {"seed"}
    assert not any(is_of_one_row(**{name: value}) for name, value in {"model": "mnist_cnn", **swept}.items())


def test_a_run_that_was_skipped_is_neither_good_nor_best():
    runs = [run("skipped", 0, None, **SKIPPED), run("good", 1)]
    assert superfluous_runs(runs, keep_runs=1, keep_days=0, now=NOW) == set()
    going = superfluous_runs(runs, keep_runs=0, keep_days=1, now=NOW + timedelta(days=9))
    assert {path.name for path in going} == {"skipped"}


def test_a_run_on_placeholder_data_is_never_the_best(make_run, tmp_path):
    for name, changes in {
        "real": {"dataset": "cifar10", "test_accuracy": 0.7},
        "stand-in": {"dataset": "synthetic", "requested_dataset": "cifar10", "test_accuracy": 0.9},
        "generated": {"dataset": "synthetic", "requested_dataset": "synthetic", "test_accuracy": 0.8},
    }.items():
        folder = make_run(f"runs/{name}", records_fingerprint="r", **changes)
        write_manifest(folder, stage="Train", identity={"run": name}, details={})
    merits = {found.folder.name: found.merit for found in runs_under(tmp_path)}
    assert merits == {"real": 0.7, "stand-in": float("-inf"), "generated": 0.8}


@pytest.mark.parametrize(("keep_days", "going"), [(0, []), (4_000, []), (2, [Path("30")])])
def test_dated_reports_go_by_their_dates_and_the_newest_stays(tmp_path, monkeypatch, keep_days, going):
    reports, gone = [DatedReport(date(2026, 10, day), Path(str(day)), (), {}) for day in (30, 31)], []
    monkeypatch.setattr(retention, "root_folder", lambda: tmp_path)
    monkeypatch.setattr(retention, "read_dated_reports", lambda _: reports)
    monkeypatch.setattr(retention, "remove", gone.append)
    monkeypatch.setattr(retention, "_roots", lambda *_: set())
    for module in ("tasks.retention", "tasks.report"):
        monkeypatch.setattr(f"{module}.Storage", lambda: SimpleNamespace(keep_runs=1, keep_days=keep_days))
    assert not retention.apply_limits([])
    assert gone == going


def test_a_run_that_cannot_be_read_is_left_alone(make_run, tmp_path):
    folder = make_run("runs/valid", records_fingerprint="r")
    write_manifest(folder, stage="Train", identity={}, details={})
    make_run("runs/no-manifest", records_fingerprint="r")
    for number, content in enumerate(
        [
            "{",
            "[]",
            "[" * 100_000,
            json.dumps({**json.loads((folder / "run.json").read_text()), "test_accuracy": 10**400}),
        ]
    ):
        broken = make_run(f"runs/broken-{number}")
        (broken / "run.json").write_text(content)
        write_manifest(broken, stage="Train", identity={}, details={})
    assert [found.folder for found in runs_under(tmp_path)] == [folder]


def test_a_run_with_an_invalid_record_still_needs_its_records(make_run, tmp_path):
    folder = make_run("runs/broken")
    write_manifest(folder, stage="Train", identity={"upstream": {"records": "r" * 64}}, details={})
    (folder / "run.json").write_text("{")
    assert [artifact.needs >= {"r" * 64} for artifact in read_artifacts(tmp_path)] == [True]


def test_a_date_without_a_time_zone_leaves_the_run_out_and_is_warned_of(make_run, tmp_path, caplog):
    folders = [make_run(f"runs/{name}", records_fingerprint="r") for name in ("naive", "valid")]
    record = json.loads((folders[0] / "run.json").read_text())
    (folders[0] / "run.json").write_text(json.dumps({**record, "finished_at": "2026-11-20T02:00:00"}))
    for folder in folders:
        write_manifest(folder, stage="Train", identity={"run": folder.name}, details={})
    runs = runs_under(tmp_path)
    assert [found.folder.name for found in runs] == ["valid"]
    assert superfluous_runs(runs, keep_runs=1, keep_days=0, now=NOW) == set()
    assert 'naive/run.json: run.json, "finished_at": expected an ISO 8601 date in UTC (not UTC)' in caplog.text


def test_only_removed_folders_count_as_removed(tmp_path, monkeypatch):
    folders = [tmp_path / "runs" / name for name in ("kept", "other")]
    for folder in folders:
        folder.mkdir(parents=True)
        write_manifest(folder, stage="Train", identity={}, details={})
        (tmp_path / "watched" / folder.name).mkdir(parents=True)
    (folders[0] / "notes.txt").write_text("a file of ours")
    monkeypatch.setattr(retention, "root_folder", lambda: tmp_path)
    monkeypatch.setattr(retention, "history_folder", lambda: tmp_path / "history")
    monkeypatch.setattr(retention, "_roots", lambda *_: set())
    monkeypatch.setattr(retention, "superfluous_runs", lambda *_, **__: {*folders})
    monkeypatch.setattr(retention, "Storage", lambda: SimpleNamespace(keep_runs=0, keep_days=1))
    assert retention.apply_limits([])
    assert [folder.is_dir() for folder in folders] == [True, False]
    assert [path.name for path in (tmp_path / "watched").iterdir()] == ["kept"]
    assert not retention.apply_limits([])


def make_fetched(root: Path) -> Path:
    """Records that another machine made long ago, fetched now."""
    folder = root / "records" / "fetched"
    folder.mkdir(parents=True)
    manifest = write_manifest(folder, stage="Records", identity={}, details={})
    manifest["created_at"] = "2020-01-01T00:00:00+00:00"
    (folder / "manifest.json").write_text(json.dumps({**manifest, "seal": seal(manifest)}))
    write_fetched(folder, remote="s3://bucket")
    return folder


def test_the_age_of_a_fetched_artifact_starts_with_the_download(tmp_path):
    folder = make_fetched(tmp_path)
    (found,) = read_artifacts(tmp_path)
    assert datetime.now(UTC) - found.here_since < timedelta(hours=1)
    for damaged in ("{", '{"remote": "s3://bucket", "fetched_at": "2026-11-20T02:00:00"}'):
        (folder / FETCHED_NAME).write_text(damaged)
        (found,) = read_artifacts(tmp_path)
        assert found.here_since.year == 2020


def test_an_artifact_replaced_by_a_download_is_not_pushed(tmp_path, monkeypatch):
    marker = tmp_path / ".unpushed" / "records" / make_fetched(tmp_path).name
    marker.parent.mkdir(parents=True)
    marker.write_text("")
    monkeypatch.setattr(remote_cache, "root_folder", lambda: tmp_path)
    monkeypatch.setattr(remote_cache, "shared", object)
    remote_cache.put_pending()
    assert not marker.exists()


def plant(luigi, name: str, days: int, **changes) -> Path:
    """A copy of the root's run that finished so many days ago, as a run of its own."""
    (original,) = [path for path in luigi.root.glob("runs/*") if "planted" not in path.name]
    folder = luigi.root / "runs" / f"planted-{name}"
    shutil.copytree(original, folder)
    identity = {**read_manifest(original)["identity"], "planted": name}
    finished_at = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="seconds")
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "finished_at": finished_at, "fingerprint": name, **changes}))
    (folder / "manifest.json").unlink()
    write_manifest(folder, stage="Train", identity=identity, details={})
    return folder


@pytest.mark.slow
def test_a_scheduled_run_removes_what_is_beyond_the_limits_logs_it_and_reports_what_is_left(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    (records,) = luigi.root.glob("records/*")
    other_records = records.with_name("planted")
    shutil.copytree(records, other_records)
    (other_records / "manifest.json").unlink()
    write_manifest(other_records, stage="Records", identity={"planted": True}, details={})
    best, old, recent = (
        plant(luigi, "best", 90, test_accuracy=1.0),
        plant(luigi, "old", 80),
        plant(luigi, "recent", 2),
    )
    unpushed = luigi.root / ".unpushed" / "runs" / plant(luigi, "unpushed", 85).name
    unpushed.parent.mkdir(parents=True)
    unpushed.write_text("")
    exports = {run: luigi.root / "exports" / f"of-{run.name}" for run in (best, old)}
    for made_of, export in exports.items():
        export.mkdir(parents=True)
        identity = {"upstream": {"run": read_manifest(made_of)["fingerprint"]}}
        write_manifest(export, stage="Export", identity=identity, details={})
    tuning = luigi.root / "tuning" / "planted"
    tuning.mkdir(parents=True)
    write_manifest(tuning, stage="Tune", identity={}, details={})
    assert nightly(luigi, "--date", days_ago(60)).returncode == 0
    assert nightly(luigi, "--date", days_ago(40)).returncode == 0
    done = nightly(luigi, "--date", days_ago(0), "--Storage-keep-days", "50")
    assert done.returncode == 0, done.stderr
    assert [folder.is_dir() for folder in (best, old, recent)] == [True, False, True]
    assert [export.is_dir() for export in exports.values()] == [True, False]
    assert not tuning.exists()
    assert (luigi.root / "runs" / unpushed.name).is_dir(), "it waits to be pushed"
    assert records.is_dir()
    assert not other_records.exists()
    assert sorted(luigi.artifacts("report/history")) == [days_ago(40), days_ago(0)]
    assert f"Removed runs/{old.name} (" in done.stderr
    assert "Removed records/planted (" in done.stderr
    assert "old" not in {found["fingerprint"] for found in luigi.report()["runs"]}
    assert all(entry["state"] == "fresh" for entry in luigi.status(*FAST).values())
    again = nightly(luigi, "--of", "Nightly", "--start", days_ago(60), "--stop", days_ago(45), "--Storage-keep-days",
                    "40", task="RangeDaily")  # fmt: skip
    assert again.returncode == 0
    assert len(luigi.artifacts("report/history")) == 2, "what was removed is not backfilled"


def test_of_equally_good_runs_the_newest_is_the_best():
    last = run("skipped", 0, None, **SKIPPED)
    equal = [run("a-old", 30, None), run("b-new", 20, None), run("c-old", 25, None)]
    going = superfluous_runs([last, *equal], keep_runs=0, keep_days=5, now=NOW)
    assert {path.name for path in going} == {"a-old", "c-old"}
