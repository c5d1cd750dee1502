"""Reading: what a run's folder may say, and what is refused by file and field."""

import errno
import json
import re
from pathlib import Path

import pytest
from report_runs import EPOCH, MISMATCH, RUN, SKIPPED

from pipeline.artifacts.manifest import write_manifest
from pipeline.artifacts.publish import publishing
from pipeline.errors import DamagedArtifactError, UnreadableArtifactError
from pipeline.runs.record import Mismatch


def setup_module() -> None:
    global read_history, read_run
    from pipeline.report import read_history, read_run


@pytest.mark.parametrize("key", list(RUN))
def test_a_run_without_a_field_is_refused_by_file_and_field(make_run, key):
    folder = make_run()
    (folder / "run.json").write_text(json.dumps({name: RUN[name] for name in RUN if name != key}))
    with pytest.raises(DamagedArtifactError, match=rf'{re.escape(str(folder / "run.json"))}.*"{key}"'):
        read_run(folder)


DAMAGE = [
    ("run.json", "{", "not valid JSON"),
    ("run.json", "[]", "expected a JSON object, found list"),
    ("run.json", "[" * 100_000, "not valid JSON"),
    ("run.json", json.dumps(RUN | {"epochs": "5"}), '"epochs": expected a valid integer'),
    ("run.json", json.dumps(RUN | {"epochs": True}), '"epochs": expected a valid integer'),
    ("run.json", json.dumps(RUN | {"train_seconds": 10**400}), '"train_seconds": expected'),
    ("run.json", json.dumps(RUN | {"dataset_verified": "yes"}), '"dataset_verified": expected a valid boolean'),
    ("run.json", json.dumps(RUN | {"finished_at": "yesterday"}), '"finished_at": expected an ISO 8601 date'),
    ("run.json", json.dumps(RUN | {"finished_at": "2026-03-01T10:00:00"}), '"finished_at": expected an ISO'),
    ("run.json", json.dumps(RUN | {"finished_at": "2026-03-01T10:00:00+02:00"}), "(not UTC)"),
    (
        "run.json",
        json.dumps(RUN | {"status": "failed"}),
        "\"status\": expected 'finished' or 'skipped', found 'failed'",
    ),
    ("run.json", json.dumps(RUN | {"mismatch": {"cause": "x"}}), '"mismatch" lacks "remedy"'),
    ("run.json", json.dumps(RUN | SKIPPED | {"mismatch": None}), '"mismatch": expected the reason why the run was'),
    ("run.json", json.dumps(RUN | SKIPPED | {"train_seconds": 3.0}), '"train_seconds": expected null in a run that'),
    (
        "run.json",
        json.dumps(RUN | {"content_digests": {"train": 1, "test": "b"}}),
        '"train": expected a valid string, found 1',
    ),
    ("run.json", json.dumps(RUN | {"time_breakdown": {}}), '"time_breakdown" lacks "step_seconds"'),
    ("run.json", json.dumps(RUN | {"peak_host_bytes": 1.5}), '"peak_host_bytes": expected a valid integer'),
    ("run.json", json.dumps(RUN | {"receipt": ["gpu"]}), '"receipt": expected an object'),
    (
        "run.json",
        json.dumps(RUN)[:-1] + ', "receipt": {"a": ' + "[" * 50 + "]" * 50 + "}}",
        "expected at most 16 levels",
    ),
    (
        "run.json",
        json.dumps(RUN | {"receipt": {"host": {"granted_memory_bytes": 10**400}, "probe": {}}}),
        "expected numbers below 2**63",
    ),
    ("run.json", json.dumps(RUN | {"segments": [{"first_epoch": 1}]}), 'lacks "last_epoch"'),
    ("metrics.jsonl", "", "expected one JSON object per epoch, found none"),
    ("metrics.jsonl", json.dumps(EPOCH) + '\n{"epoch": 2', "line 2 is not valid JSON"),
    ("metrics.jsonl", '{"epoch": 1}', 'line 1 lacks "loss"'),
]


@pytest.mark.parametrize(("name", "content", "message"), DAMAGE)
def test_a_damaged_file_is_refused_by_name(make_run, name, content, message):
    folder = make_run()
    (folder / name).write_text(content)
    with pytest.raises(DamagedArtifactError, match=re.escape(message)) as raised:
        read_run(folder)
    assert str(folder / name) in str(raised.value)


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl"])
def test_a_missing_file_is_refused_by_name(make_run, name):
    folder = make_run()
    (folder / name).unlink()
    with pytest.raises(DamagedArtifactError, match=re.escape(str(folder / name))):
        read_run(folder)


def test_a_record_of_an_older_version_is_a_finished_run(make_run):
    run = read_run(make_run())
    assert (run.status, run.on_mismatch, run.epochs_restored) == ("finished", "fail", 0)
    later = ("mismatch", "receipt", "content_digests", "steps_per_epoch", "time_breakdown", "peak_host_bytes")
    assert [getattr(run, name) for name in later] == [None] * len(later)


@pytest.mark.parametrize("metrics", ["", None])
def test_a_skipped_run_needs_no_metrics(make_run, metrics):
    folder = make_run(curves=[], **SKIPPED)
    if metrics is None:
        (folder / "metrics.jsonl").unlink()
    run = read_run(folder)
    assert (run.curves, run.mismatch) == ([], Mismatch(**MISMATCH))


def made_from(folder, code="1", **settings):
    settings = {"seed": 0, "global_batch_size": 64, "epochs": 2} | settings
    identity = {"settings": settings, "upstream": {}, "code": {"f": code}}
    write_manifest(folder, stage="Train", identity=identity, details={})
    return read_run(folder).made_from


def test_what_a_run_was_made_from_is_the_same_for_all_seeds_and_batches_and_no_more(make_run):
    folder = make_run()
    first = made_from(folder)
    assert made_from(folder, seed=1) == made_from(folder, global_batch_size=128) == first
    assert made_from(folder, epochs=3) != first
    assert made_from(folder, code="2") != first


def test_a_manifest_without_settings_is_damage(make_run):
    folder = make_run()
    write_manifest(folder, stage="Train", identity={"settings": 3, "upstream": {}}, details={})
    with pytest.raises(DamagedArtifactError, match=r"manifest\.json.*expected settings"):
        read_run(folder)


def test_a_history_that_may_not_be_read_is_named_with_the_remedy(tmp_path, monkeypatch):
    def refuse(path, **how):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    log = tmp_path / "history.jsonl"
    log.touch()
    monkeypatch.setattr(Path, "read_text", refuse)
    # Not as an error of the disk, which `publishing` makes of an OSError.
    with pytest.raises(UnreadableArtifactError) as refused, publishing(tmp_path / "report"):
        read_history(log)
    assert str(refused.value).startswith(f"{log}: permission denied. Nothing can rebuild")
    assert "chmod u+rw" in str(refused.value)
