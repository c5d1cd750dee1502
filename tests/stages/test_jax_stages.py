"""A sweep over backends as users run it: one command, two backends, one report."""

import pytest
from luigi_process import FAST, Luigi


@pytest.mark.slow
def test_a_sweep_mixes_backends_and_the_report_says_which_is_which(tmp_path, tiny_tfds):
    luigi = Luigi(tmp_path, tiny_tfds)
    backends = ["--Report-backends", '["tensorflow","jax"]']
    done = luigi(*FAST, *backends)
    assert done.returncode == 0, done.stderr
    assert "run 2/2, backend jax: training baseline_cnn on cpu" in done.stderr
    assert "cudart_stub" not in done.stderr, "native libraries are quiet in the other process too"
    runs = {run["backend"]: run for run in luigi.report()["runs"]}
    assert set(runs) == {"tensorflow", "jax"}
    assert runs["jax"]["device_verified"] is True
    assert "JAX" in done.stdout
    assert "by JAX" in (luigi.root / "report" / "report.html").read_text()
    assert {stage["state"] for stage in luigi.status(*FAST, *backends).values()} == {"fresh"}
    again = luigi(*FAST, *backends)
    assert again.stderr.strip().endswith("Nothing to do: every stage is fresh.")
