"""Trainings of small records with a tiny model."""

from functools import partial

from pipeline.config import TrainSettings

SETTINGS = {
    "model": "tests.tiny_model:build",
    # RMSprop: few operations to trace per weight.
    "recipe": "baseline",
    "epochs": 2,
    "global_batch_size": 32,
    "device": "cpu",
    "precision": "float32",
}


def run(records, folder, *, checkpoints=None, initial=None, **settings):
    from pipeline.training import process
    from pipeline.training import train as training

    folder.mkdir()
    options = TrainSettings(**{**SETTINGS, **settings})
    train = training.train if options.backend != "jax" else partial(process.train_on, "jax")
    record = train(
        records,
        options,
        folder,
        requested_dataset="cifar10",
        initial=initial,
        fingerprint="f" * 64,
        checkpoints=checkpoints or folder.with_name(f"{folder.name}-checkpoints"),
    )
    return record.model_dump(mode="json")
