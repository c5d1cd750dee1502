"""``make status``: each stage with its state and, where it is not fresh, why. Reads manifests and changes nothing."""

import argparse
import json
import sys
from collections.abc import Iterator

from luigi.cmdline_parser import CmdlineParser

from pipeline.errors import PipelineError
from tasks.stage import Condition, Stage


def examine(stage: Stage) -> Iterator[tuple[str, Condition]]:
    """(name, condition) of each stage, from the source to ``stage``."""
    for below in stage.below:
        yield from examine(below)
    yield stage.task_family, stage.condition()


def main(argv: list[str]) -> int:
    """Print the state of every stage; takes Luigi's own overrides, such as ``--Train-epochs 1``."""
    parser = argparse.ArgumentParser(
        prog="make status",
        description="Each stage: fresh, stale, missing or damaged, and why.",
        epilog='Settings as for the pipeline: make status ARGS="--Train-epochs 1".',
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    arguments, overrides = parser.parse_known_args(argv)
    with CmdlineParser.global_instance(["--module", "tasks", "Report", *overrides]) as command_line:
        stages = dict(examine(command_line.get_task_obj()))
    if arguments.json:
        print(json.dumps({name: {"state": c.state, "reasons": c.reasons} for name, c in stages.items()}, indent=1))
    else:
        for name, condition in stages.items():
            print(f"{name:8} {condition.state:8} {'; '.join(condition.reasons)}".rstrip())
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except PipelineError as error:
        sys.exit(f"ERROR {type(error).__name__}: {error}")
