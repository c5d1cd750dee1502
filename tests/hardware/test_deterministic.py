"""[Train] deterministic: which switch of a backend it turns on. That JAX knows its flag is in test_jax_receipt.py."""

import os

import pytest

from pipeline.settings.training import TrainSettings


def setup_module() -> None:
    global config, place, tf
    import tensorflow as tf
    from tensorflow.python.framework import config

    from pipeline.hardware.placement import place


@pytest.mark.parametrize("asked", ["true", "false"])
def test_tensorflow_refuses_random_operations_only_when_determinism_is_requested(asked):
    try:
        place(TrainSettings(device="cpu", deterministic=asked))
        assert config.is_op_determinism_enabled() == (asked == "true")
        if asked == "true":
            # Without a seed, which another test may have set, no kernel gives the same numbers each time.
            tf.random.set_seed(None)
            with pytest.raises(RuntimeError, match="determinism"):
                tf.random.normal([2])
    finally:
        # Private to TensorFlow. It has no public way to undo this.
        config.disable_op_determinism()


@pytest.mark.parametrize(("precision", "expected"), [("float32", "highest"), ("tf32", "tf32"), ("bfloat16", "highest")])
def test_float32_is_of_all_its_bits_unless_tf32_is_requested(precision, expected):
    from pipeline.hardware.tensorflow import RUNTIME

    try:
        RUNTIME.set_matmul_precision(precision)
        assert tf.config.experimental.tensor_float_32_execution_enabled() is (precision == "tf32")
        assert RUNTIME.describe(None)["matmul_precision"] == expected
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(False)


@pytest.mark.parametrize(
    ("precision", "expected", "compiled"),
    [("float32", "highest", "[HIGHEST, HIGHEST]"), ("tf32", "tf32", "[HIGH, HIGH]")],
)
def test_jax_compiles_products_of_all_bits_unless_tf32_is_requested(precision, expected, compiled):
    jax = pytest.importorskip("jax", reason="make setup EXTRA=jax")
    from pipeline.hardware.jax import RUNTIME

    before = jax.config.jax_default_matmul_precision
    try:
        RUNTIME.set_matmul_precision(precision)
        assert RUNTIME.describe(())["matmul_precision"] == expected
        product = jax.jit(lambda one, other: one @ other).lower(*[jax.ShapeDtypeStruct((8, 8), "float32")] * 2)
        assert compiled in product.as_text()
    finally:
        jax.config.update("jax_default_matmul_precision", before)


@pytest.mark.parametrize(("device", "expected"), [("gpu", "tf32"), ("cpu", "float32"), ("tpu", "float32")])
def test_only_a_gpu_computes_in_tf32(device, expected):
    from pipeline.hardware.placement import Placement, choose_precision
    from pipeline.hardware.tensorflow import RUNTIME

    placement = Placement(
        runtime=RUNTIME, strategy=None, num_replicas=1, requested_device=device, effective_device=device
    )
    assert choose_precision("tf32", placement) == expected


@pytest.mark.parametrize(("asked", "flags"), [("true", " --xla_gpu_deterministic_ops=true"), ("false", "")])
def test_xla_gets_its_flag_in_addition_to_the_environment_only_for_determinism(monkeypatch, asked, flags):
    pytest.importorskip("jax", reason="make setup EXTRA=jax")
    from pipeline.hardware.jax import Jax

    own = "--xla_force_host_platform_device_count=2"
    monkeypatch.setenv("XLA_FLAGS", own)
    # JAX looks at the flags when it lays out its devices, once per process.
    monkeypatch.setattr(Jax, "place_on", lambda *_: {"strategy": (), "num_replicas": 1})
    place(TrainSettings(device="cpu", backend="jax", deterministic=asked), Jax())
    assert os.environ["XLA_FLAGS"] == f"{own}{flags}"
