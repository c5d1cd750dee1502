from functools import partial

from pipeline.config import TrainSettings

SETTINGS = {"epochs": 2, "global_batch_size": 32, "device": "cpu", "precision": "float32"}


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
