"""The precision of one model does not become that of the next model of the process."""

import pytest

from pipeline.errors import SettingsError


def setup_module() -> None:
    global build_network, keras
    import keras

    from pipeline.networks.build import build_network


def test_a_model_in_bfloat16_leaves_the_policy_of_the_process_alone():
    manifest = {"image": {"shape": (28, 28, 1)}, "label_names": list("ab")}
    before = keras.config.dtype_policy()
    assert build_network(manifest, "mnist_dense", "bfloat16").layers[-2].compute_dtype == "bfloat16"
    assert keras.config.dtype_policy() == before
    assert build_network(manifest, "mnist_dense", "float32").layers[-2].compute_dtype == "float32"


def test_a_model_that_cannot_be_built_leaves_the_policy_alone():
    before = keras.config.dtype_policy()
    with pytest.raises(SettingsError):
        build_network({"image": {"shape": (2, 2, 1)}, "label_names": list("ab")}, "flowers_convnet", "bfloat16")
    assert keras.config.dtype_policy() == before
