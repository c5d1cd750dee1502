"""``make push``: gives the remote what the present settings reach here and what it has not yet."""

import argparse

from tasks import sharing
from tasks.commands import command
from tasks.dag import by_name
from tasks.stage import Stage


def parser() -> argparse.ArgumentParser:
    """The command has no flags of its own."""
    return command.parser("push", "Push the artefacts of the present settings to [Storage] remote.")


def main(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Push each stage's artefact that is valid and final, and say how each ended."""
    remote = sharing.required()
    for name, stage in by_name([stage for stage in stages if stage.is_shared]).items():
        condition = stage.condition()
        if condition.state != "fresh" or not sharing.is_final(stage.output().folder) or stage.stands_in():
            reason = condition if condition.state != "fresh" else "not final, or not made here"
            print(f"{name}: not pushed, {reason}", flush=True)
            continue
        print(f"{name}: {sharing.give(remote, stage.kind, stage.output(), replace=stage.is_renewed)}", flush=True)
    return 0


if __name__ == "__main__":
    command.run(main, parser())
