"""``make tensorboard``: all runs of the storage root in TensorBoard, on this machine only."""

import argparse
import os
import sys

from tasks.commands import command
from tasks.stage import Stage
from tasks.storage import root_folder
from tasks.train import Train


def parser() -> argparse.ArgumentParser:
    """The flags that are TensorBoard's own; what else is given is a setting."""
    own = command.parser("tensorboard", "All runs of the storage root in TensorBoard, on loopback.")
    own.add_argument("--port", default="6006", help="where it listens; 0: any free one")
    own.add_argument("--load_fast", default="auto", help="TensorBoard's data loader: true, false or auto")
    return own


def main(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Become TensorBoard."""
    runs = root_folder() / Train.kind
    print(f"tensorboard: {runs}{'' if runs.is_dir() else ', which holds no run yet'}", flush=True)
    flags = {"logdir": runs, "host": "127.0.0.1", "port": arguments.port, "load_fast": arguments.load_fast}
    program = [sys.executable, "-m", "tensorboard.main", *(f"--{name}={value}" for name, value in flags.items())]
    os.execv(program[0], program)


if __name__ == "__main__":
    command.run(main, parser())
