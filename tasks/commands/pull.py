"""``make pull``: has the artefacts of the present settings from the remote, the records too, and makes nothing."""

import argparse

from pipeline.errors import RemoteError
from tasks import remote_cache
from tasks.commands import command
from tasks.process import lock
from tasks.stage import Stage, by_name
from tasks.status import status
from tasks.storage import Storage, root_folder


def parser() -> argparse.ArgumentParser:
    """The command has no flags of its own."""
    return command.parser("pull", "Fetch the artefacts of the present settings from [Storage] remote.")


def main(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Fetch each stage's artefact, the source first, as it says what the others are.

    Returns:
        The exit code of a RemoteError where one of them is on neither side.
    """
    cache, is_missing = remote_cache.required(), False
    lock.hold(root_folder(), on_busy=Storage().on_busy)
    for name, stage in by_name([stage for stage in stages if stage.is_shared]).items():
        found = status(stage, cache)
        if found.remote:
            artefact = stage.output()
            cache.get(stage.kind, artefact.expected, artefact.folder)
            print(f"{name}: fetched, {artefact}", flush=True)
        elif found.is_fresh:
            print(f"{name}: here already, {stage.output()}", flush=True)
        else:
            print(f"{name}: not on the remote; here {found}", flush=True)
            is_missing = True
    return RemoteError.exit_code if is_missing else 0


if __name__ == "__main__":
    command.run(main, parser())
