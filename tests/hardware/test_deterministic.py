"""[Train] deterministic: what a backend is told where it is asked for, and not where it is not."""

import os
import subprocess
import sys

import pytest

# In a process of its own: it cannot be taken back.
TENSORFLOW = """
import tensorflow as tf
from pipeline.config import TrainSettings
from pipeline.hardware import place

place(TrainSettings(device="cpu", deterministic={asked!r}))
try:
    # Of no seed: there is no kernel of it that gives the same each time.
    tf.random.normal([2])
except RuntimeError as error:
    print("refused", "determinism" in str(error))
else:
    print("drawn")
"""
JAX = """
import os
from pipeline.config import TrainSettings
from pipeline.hardware import place

place(TrainSettings(device="cpu", backend="jax", deterministic={asked!r}))
print(os.environ["XLA_FLAGS"])
import jax

# An unknown flag would end the process here.
print(jax.devices()[0].platform)
"""


def run(code: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(("asked", "said"), [("true", ["refused True"]), ("false", ["drawn"])])
def test_tensorflow_refuses_what_differs_each_time_where_that_is_asked_for(asked, said):
    assert run(TENSORFLOW.format(asked=asked)) == said


@pytest.mark.parametrize(("asked", "flags"), [("true", " --xla_gpu_deterministic_ops=true"), ("false", "")])
def test_xla_is_told_beside_what_the_environment_tells_it(asked, flags):
    pytest.importorskip("jax", reason="make setup EXTRA=jax")
    own = "--xla_force_host_platform_device_count=2"
    assert run(JAX.format(asked=asked), KERAS_BACKEND="jax", XLA_FLAGS=own) == [f"{own}{flags}", "cpu"]
