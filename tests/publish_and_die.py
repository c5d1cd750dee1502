"""Publishes an artifact in a process of its own and kills it before the n-th rename, fsync, unlink or rmdir.

Usage: python publish_and_die.py SCENARIO ROOT CONTENT N. Prints how many there were when it lives to its end.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from pipeline.artifacts.manifest import write_manifest
from pipeline.artifacts.publish import publishing, publishing_in_place

DEADLY = ("fsync", "rename", "replace", "unlink", "rmdir")
FILES = ("a", "b", "logs/c")


def arm(nth: int) -> list[int]:
    """Wrap each deadly function; the list counts their calls."""
    calls = [0]

    def deadly(function: Callable) -> Callable:
        def call(*args: object, **kwargs: object) -> object:
            calls[0] += 1
            if calls[0] == nth:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return call

    for name in DEADLY:
        setattr(os, name, deadly(getattr(os, name)))
    return calls


def publish(scenario: str, root: Path, content: str) -> None:
    """What a stage does at its end (``in_place``: the report's), or a training after an epoch."""
    if scenario == "checkpoint":
        save_epoch(root / "checkpoints" / "run", int(content))
        return
    how, final = (publishing_in_place, root / "report") if scenario == "in_place" else (publishing, root / "runs" / "a")
    with how(final) as temporary:
        for name in FILES if scenario != "in_place" else FILES[:2]:
            (temporary / name).parent.mkdir(exist_ok=True)
            (temporary / name).write_text(content * 1000)
        write_manifest(temporary, stage="Train", identity={"content": content}, details={})


def save_epoch(folder: Path, epochs: int) -> None:
    """The checkpoint after ``epochs`` epochs; the weights tell the epoch."""
    import keras

    from pipeline.training.loop import History, save_checkpoint

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(optimizer="sgd", loss="mse")
    model.set_weights([weight * epochs for weight in model.get_weights()])
    history = History([{"epoch": epoch + 1} for epoch in range(epochs)])
    save_checkpoint(folder, model, history, fingerprint="f" * 64, used={}, belongs_to={})


if __name__ == "__main__":
    # Imported before it is armed: how rmtree works is decided on import.
    assert shutil.rmtree
    if sys.argv[1] == "checkpoint":
        import keras  # noqa: F401
        import tensorflow  # noqa: F401
    # What is kept for a quicker start, bytecode or digests of modules, is no part of what is published.
    sys.dont_write_bytecode = True
    counted = arm(int(sys.argv[4]))
    publish(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
    print(counted[0])
