"""``make push``: gives the remote what the present settings reach here and what it has not yet."""

import argparse

from tasks import remote_cache
from tasks.commands import command
from tasks.stage import Stage, by_name


def parser() -> argparse.ArgumentParser:
    """The command has no flags of its own."""
    return command.parser("push", "Push the artefacts of the present settings to [Storage] remote.")


def main(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Push each stage's artefact that is valid and final, and say how each ended."""
    cache = remote_cache.required()
    for name, stage in by_name([stage for stage in stages if stage.is_shared]).items():
        found = stage.status()
        if not found.is_fresh or not remote_cache.is_final(stage.output().folder) or stage.stands_in():
            reason = "not final, or not made here" if found.is_fresh else found
            print(f"{name}: not pushed, {reason}", flush=True)
            continue
        outcome = cache.put(stage.kind, stage.output().folder, replace=stage.is_renewed, keep=True)
        print(f"{name}: {outcome}", flush=True)
    return 0


if __name__ == "__main__":
    command.run(main, parser())
