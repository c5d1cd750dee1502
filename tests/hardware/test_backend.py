"""Which backend trains: by the setting, the machine and what is installed, before anything heavy is imported."""

import os
import subprocess
import sys

import pytest

from pipeline import machine
from pipeline.artifacts.fingerprint import code_digests
from pipeline.errors import HardwareMismatchError, SettingsError
from pipeline.hardware import placement, runtime
from pipeline.settings.training import TrainSettings


@pytest.fixture
def computer(monkeypatch):
    """A function that gives the machine TPU chips, an NVIDIA driver and packages."""

    def build(*, chips=(), driver=False, packages=("jax",)):
        monkeypatch.setattr(machine, "tpu_chips", lambda: list(chips))
        monkeypatch.setattr(machine, "has_nvidia_driver", lambda: driver)
        # JAX with CUDA cannot use a driver of AMD or Windows.
        monkeypatch.setattr(machine, "has_gpu_driver", lambda: True)
        monkeypatch.setattr(placement, "installed_version", lambda name: name in packages)

    return build


@pytest.mark.parametrize(
    ("settings", "about", "expected"),
    [
        ({}, {}, "tensorflow"),
        ({"backend": "jax"}, {}, "jax"),
        ({"device": "cpu"}, {"chips": ["TPU v5e"]}, "tensorflow"),
        ({}, {"chips": ["TPU v5e"]}, "jax"),
        ({"device": "tpu"}, {"chips": ["TPU v5e"]}, "jax"),
        ({"device": "tpu"}, {}, "tensorflow"),
        ({"backend": "tensorflow", "device": "tpu"}, {"chips": ["TPU v5e"]}, "tensorflow"),
        ({"device": "gpu"}, {"driver": True}, "tensorflow"),
        ({"device": "gpu"}, {"driver": True, "packages": ("jax", "jax-cuda12-plugin")}, "jax"),
        ({}, {"driver": True, "packages": ("jax", "jax-cuda13-plugin")}, "jax"),
        ({}, {"driver": False, "packages": ("jax", "jax-cuda13-plugin")}, "tensorflow"),
    ],
)
def test_auto_takes_the_backend_that_suits_the_machine(computer, settings, about, expected):
    computer(**about)
    assert placement.choose_backend(TrainSettings(**settings)) == expected


@pytest.mark.parametrize(("device", "extra"), [("auto", "jax"), ("gpu", "jax-gpu"), ("tpu", "jax-tpu")])
def test_a_backend_that_is_not_installed_is_refused_with_the_command_that_installs_it(computer, device, extra):
    computer(packages=())
    with pytest.raises(SettingsError, match=rf"make setup EXTRA={extra},"):
        placement.require_backend(TrainSettings(backend="jax", device=device))
    placement.require_backend(TrainSettings())


def test_the_choice_imports_neither_of_them():
    code = (
        "import sys\n"
        "from pipeline.settings.training import TrainSettings\n"
        "from pipeline.hardware.placement import choose_backend\n"
        "choose_backend(TrainSettings())\n"
        "print({'tensorflow', 'jax', 'keras'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_loader_of_models_needs_no_tensorflow_with_jax():
    code = "import sys, pipeline.runs.load_model; print('tensorflow' in sys.modules)"
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_missing_driver_is_reported_without_loading_a_library(monkeypatch):
    from tasks import train

    monkeypatch.setattr("pipeline.machine.has_gpu_driver", lambda: False)
    monkeypatch.setattr(train, "_look_for_device", lambda *_: pytest.fail("a process is started"))
    error = train.device_error(TrainSettings(device="gpu"))
    assert isinstance(error, HardwareMismatchError)
    assert "This machine has no NVIDIA driver." in str(error)


def test_a_defect_in_the_process_that_asks_ends_the_run(monkeypatch, caplog):
    from tasks import train

    def fail(*_, **__):
        raise RuntimeError("a defect")

    monkeypatch.setattr("pipeline.machine.has_gpu_driver", lambda: True)
    monkeypatch.setattr(train, "in_child", fail)
    train._look_for_device.cache_clear()
    with pytest.raises(SystemExit) as ended:
        train.device_error(TrainSettings(device="gpu"))
    assert ended.value.code == 1
    assert "a defect" in caplog.text


def test_only_variables_of_the_computation_are_recorded():
    computing = {"OMP_NUM_THREADS": "1", "TF_ENABLE_ONEDNN_OPTS": "0", "XLA_FLAGS": "--x", "JAX_ENABLE_X64": "1"}
    computing |= {"TF_NUM_INTRAOP_THREADS": "1", "NVIDIA_TF32_OVERRIDE": "1", "TF_XLA_FLAGS": "--tf_xla_auto_jit=2"}
    placing = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "0"}
    others = {"HOME": "/root", "JAX_COORDINATOR_ADDRESS": "h:1", "JAX_COMPILATION_CACHE_DIR": "/c", "OMPI_RANK": "0"}
    assert runtime.computation_flags(computing | placing | others) == computing
    assert runtime.flags(computing | placing | others) == computing | placing


@pytest.mark.parametrize(("entry", "depends"), [("sources", False), ("shards.job", False), ("training.train", True)])
def test_an_edit_of_these_variables_rebuilds_no_data(entry, depends):
    assert any("computation_flags" in names for names in code_digests(f"pipeline.{entry}").values()) == depends
