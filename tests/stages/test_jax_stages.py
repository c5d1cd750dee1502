"""A sweep over backends as users run it: one command, two backends, one report."""

import pytest
from luigi_process import FAST, TINY


@pytest.mark.slow
def test_a_sweep_mixes_backends_and_the_report_says_which_is_which(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    settings = [*FAST, *TINY, "--Report-backends", '["tensorflow","jax"]']
    done = luigi(*settings)
    assert done.returncode == 0, done.stderr
    assert "run 2/2, backend jax: Training tests.tiny_model:build on cpu" in done.stderr
    assert "cudart_stub" not in done.stderr, "native libraries are quiet in the other process too"
    runs = {run["backend"]: run for run in luigi.report()["runs"] if run["model"] == TINY[1]}
    assert set(runs) == {"tensorflow", "jax"}
    assert runs["jax"]["device_verified"] is True
    assert "JAX" in done.stdout
    assert "by JAX" in (luigi.root / "report" / "report.html").read_text()
    assert {stage["state"] for stage in luigi.status(*settings).values()} == {"fresh"}
    again = luigi.here("tasks", "Report", *settings)
    assert again.stderr.strip().endswith("Nothing to do. Every stage is fresh.")
