"""Reached: the folders under the storage root that the present settings reach, as JSON (for clean-stale)."""

import argparse
import json

from tasks.beside import beside
from tasks.commands import command
from tasks.stage import Stage


def main(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Print them; of a stage that waits for one above it to be known there is none yet."""
    wanted = [*stages, *beside()]
    known = [stage for stage in wanted if all(below.is_known() for below in stage.below)]
    print(json.dumps([str(folder) for stage in known for folder in stage.folders()]))
    return 0


if __name__ == "__main__":
    command.run(main, command.parser("reached", "The folders that the present settings reach, as JSON."))
