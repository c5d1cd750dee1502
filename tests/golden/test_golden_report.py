"""The report of four fixed runs, and records of every schema version.

The runs were made on commit 7c0bf7d from the data in ``data/``: two seeds on images, one skipped for want of a TPU, and
one on a text. After an intended change, run ``pytest tests/golden --snapshot-update`` and review the difference.
"""

import json
import re
from pathlib import Path

import pytest
from syrupy.extensions.json import JSONSnapshotExtension

DATA = Path(__file__).parent / "data"
VERSIONS = sorted(int(path.stem) for path in (DATA / "run_versions").glob("*.json"))


@pytest.fixture
def json_snapshot(snapshot):
    return snapshot.use_extension(JSONSnapshotExtension)


def normalized(value):
    """The value with images and drawings shortened to their kind. matplotlib writes other bytes in each version."""
    if isinstance(value, dict):
        return {name: normalized(part) for name, part in value.items()}
    if isinstance(value, list):
        return [normalized(part) for part in value]
    return re.sub(r"^(data:[\w/+]+;base64,).*$", r"\1", value) if isinstance(value, str) else value


def test_report_of_four_fixed_runs(tmp_path, json_snapshot):
    from pipeline.report import build_report, write_report

    folders = sorted((DATA / "runs").iterdir())
    current = [json.loads((folder / "run.json").read_text())["fingerprint"] for folder in folders]
    write_report(build_report(folders, current=current), tmp_path)
    assert normalized(json.loads((tmp_path / "report.json").read_text())) == json_snapshot


def test_there_is_a_record_of_every_schema_version():
    from pipeline.runs.record import SCHEMA_VERSION

    assert list(range(1, SCHEMA_VERSION + 1)) == VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_record_of_an_earlier_schema_version_is_read(version, tmp_path, json_snapshot):
    from pipeline.runs.record import read_record

    (tmp_path / "run.json").write_text((DATA / "run_versions" / f"{version}.json").read_text())
    assert read_record(tmp_path).model_dump(mode="json", exclude={"receipt", "segments"}) == json_snapshot
