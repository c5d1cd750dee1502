"""Fine-tuning in the whole pipeline: by the name of a run, which the report names and nothing clears away."""

import json

import pytest
from luigi_process import FAST


@pytest.mark.slow
def test_a_run_starts_from_another_by_its_folders_name_and_the_report_says_so(first_run, tmp_path):
    luigi = first_run.copy(tmp_path / "fine")
    (first,) = luigi.artifacts("runs")
    args = ["--Train-initial-weights", first, "--Train-freeze", "conv_.*"]
    done = luigi(*FAST, *args)
    assert done.returncode == 0, done.stderr
    fingerprint = json.loads((luigi.root / "runs" / first / "manifest.json").read_text())["fingerprint"]
    (second,) = set(luigi.artifacts("runs")) - {first}
    record = json.loads((luigi.root / "runs" / second / "run.json").read_text())
    assert (record["initial_weights"], record["initial_run"]) == (first, fingerprint)
    page, text = ((luigi.root / "report" / name).read_text() for name in ("report.html", "report.md"))
    assert all(f"run {fingerprint[:12]}" in one for one in (page, text))
    assert "3, from conv_1 to conv_3" in page
    # By a path it is the same, and nothing is done.
    weights = luigi.root / "runs" / first / "weights.safetensors"
    args[1] = str(weights)
    assert luigi.status(*FAST, *args)["Train"]["state"] == "fresh"
    stale = luigi.python("-m", "tasks", "clean-stale", *FAST, *args)
    assert first not in stale.stdout, "the run that it starts from"
    args[1] = "not_there"
    done = luigi(*FAST, *args)
    assert done.returncode == 2
    assert "[Train] initial_weights: expected the folder of a run with weights" in done.stderr
