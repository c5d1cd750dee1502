"""The features of a frozen backbone are kept as long as a run needs them."""

import json

import pytest
from luigi_process import FAST


def test_features_that_several_runs_share_are_listed_once(first_run):
    args = [
        "--Train-model",
        "efficientnet_lite0",
        "--Train-training-recipe",
        "fine_tuning",
        "--Train-fine-tune",
        "head",
    ]
    states = first_run.status(*FAST, *args, "--Report-seeds", "[0,1]")
    assert [*states] == ["Source", "Records", "Features", "Train seed 0", "Train seed 1", "Report"]
    states = first_run.status(*FAST, *args, "--Report-precisions", "[float32,bfloat16]")
    each = ["Features precision float32", "Train precision float32"]
    each += ["Features precision bfloat16", "Train precision bfloat16"]
    assert [*states] == ["Source", "Records", *each, "Report"]


@pytest.mark.slow
def test_features_stay_for_the_runs_that_use_them(first_run, tmp_path):
    luigi = first_run.copy(tmp_path / "fine")
    args = [*FAST, "--Train-model", "efficientnet_lite0", "--Train-training-recipe", "fine_tuning"]
    args += ["--Train-fine-tune", "head"]
    assert luigi.status(*args)["Features"]["state"] == "new"
    done = luigi(*args)
    assert done.returncode == 0, done.stderr
    (name,) = luigi.artifacts("features")
    (run_name,) = (one for one in luigi.artifacts("runs") if one.startswith("efficientnet"))
    fingerprint = json.loads((luigi.root / "features" / name / "manifest.json").read_text())["fingerprint"]
    assert json.loads((luigi.root / "runs" / run_name / "manifest.json").read_text())["features"] == fingerprint
    other = [*args, "--Train-seed", "1"]
    states = luigi.status(*other)
    assert (states["Features"]["state"], states["Train"]["state"]) == ("fresh", "stale")
    assert f"features/{name}" not in luigi.command("clean-stale", *other).stdout
    # The run needs them, and another model needs neither.
    assert f"features/{name}" not in luigi.command("clean-stale", *args).stdout
    assert f"features/{name}" in luigi.command("clean-stale", *FAST).stdout
