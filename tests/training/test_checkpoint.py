"""Checkpoints of a model that is compiled and not trained."""

import numpy as np

from pipeline.hardware.placement import place
from pipeline.settings.training import TrainSettings


def setup_module() -> None:
    global History, compiled_model, keras, read_manifest, restore_checkpoint, save_checkpoint
    import keras

    from pipeline.artifacts.manifest import read_manifest
    from pipeline.training.loop import History, restore_checkpoint, save_checkpoint
    from pipeline.training.model import compiled_model


def test_the_state_of_model_and_optimizer_is_restored(small_records, tmp_path):
    settings = TrainSettings(
        device="cpu", model="tests.tiny_model:build", training_recipe="adam", precision="float32", global_batch_size=128
    )
    placement = place(settings)

    def compiled():
        return compiled_model(read_manifest(small_records), settings, placement, 3, outputs="logits")

    saved, restored = compiled(), compiled()
    rng = np.random.default_rng(0)
    variables = [*saved.trainable_variables, *saved.optimizer.variables]
    for variable in variables:
        variable.assign(rng.uniform(1, 9, variable.shape).astype(variable.dtype))
    save_checkpoint(tmp_path, saved, History(), fingerprint="f" * 64, used={}, belongs_to={})
    restore_checkpoint(tmp_path, restored, fingerprint="f" * 64, used={})
    found = [*restored.trainable_variables, *restored.optimizer.variables]
    for before, after in zip(variables, found, strict=True):
        np.testing.assert_array_equal(*(keras.ops.convert_to_numpy(variable) for variable in (before, after)))
