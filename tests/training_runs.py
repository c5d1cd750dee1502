"""Trainings of small records with a tiny model."""

import pytest

from pipeline.settings.training import TrainSettings
from pipeline.training.launch import TrainRequest

SETTINGS = {
    "model": "tests.tiny_model:build",
    # RMSprop: few operations to trace per weight.
    "training_recipe": "baseline",
    "epochs": 2,
    "global_batch_size": 32,
    "device": "cpu",
    "precision": "float32",
}
# Environment of processes that train on JAX, where the speed of the compiled step does not matter.
QUICKLY_COMPILED = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}


class Killed(Exception):
    """Stands for a kill: nothing of ours catches it."""


def train_until(epochs_done, records, folder, **settings):
    """Train until the checkpoint of an epoch is there. It lies in ``folder / "checkpoints"``."""
    from pipeline.training import loop

    report = loop._log_epoch

    def kill(row, *more):
        if row["epoch"] == epochs_done:
            raise Killed
        return report(row, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_log_epoch", kill)
        with pytest.raises(Killed):
            run(records, folder / f"killed-{epochs_done}", checkpoints=folder / "checkpoints", **settings)


def run(records, folder, **how):
    from pipeline.training import launch
    from pipeline.training.train import train

    folder.mkdir()
    request = request_for(records, folder, **how)
    record = (launch.train_in_child if request.settings.backend == "jax" else train)(request, folder)
    return record.model_dump(mode="json")


def request_for(records, folder, *, checkpoints=None, initial=None, features=None, **settings):
    return TrainRequest(
        records=records,
        settings=TrainSettings(**{**SETTINGS, **settings}),
        requested_dataset="cifar10",
        initial=initial,
        features=features,
        fingerprint="f" * 64,
        checkpoints=checkpoints or folder.with_name(f"{folder.name}-checkpoints"),
    )
