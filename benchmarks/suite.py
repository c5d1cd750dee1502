"""The suite: runs the parts; writes RESULTS.md and results.json beside this file."""

import argparse
import importlib
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import results
from benchmarks.comparison import ROUNDS, Comparison
from benchmarks.data import Bench, prepare
from pipeline.errors import PipelineError

# In the order of their numbers.
PARTS = ("records", "stream", "fit", "accuracy", "cold")
# Asked for by name: they need photographs, ten minutes, the packages of make setup-dev, two hours.
MORE_PARTS = ("photographs", "files", "remote", "experiments")


def main() -> int:
    """Measure; 0 where all was measured, whether or not the goals were reached, else the exit code of what was not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"{', '.join(PARTS)}; all if none is named")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"turns of each comparison ({ROUNDS})")
    arguments = parser.parse_args()
    parts = [one for part in arguments.parts or PARTS for one in _single(part)]
    known = [one for part in (*PARTS, *MORE_PARTS) for one in (part, *_single(part))]
    if unknown := {*parts} - {*known}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(dict.fromkeys(known))}")
    # Inherited by every process below.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with tempfile.TemporaryDirectory(prefix="tensorcraft-bench-") as folder:
        try:
            bench = _in_own_process(prepare, Path(folder), arguments.rounds)
        except PipelineError as error:
            print(f"benchmarks: {error}", file=sys.stderr)
            return error.exit_code
        code = 0
        for part in parts:
            print(f"{part} …", file=sys.stderr, flush=True)
            try:
                measured = [one.to_json() for one in _in_own_process(measure, part, bench)]
            # What one part lacks is no reason to leave out the others, hours later.
            except PipelineError as error:
                print(f"benchmarks: {part}: {error}", file=sys.stderr)
                code = error.exit_code
                continue
            results.show(measured)
            results.write(part, measured, datetime.now(UTC).date().isoformat())
    return code


def measure(part: str, bench: Bench) -> list[Comparison]:
    """One part's comparisons; called in a new process."""
    module, _, name = part.partition(":")
    return importlib.import_module(f"benchmarks.{module}").measure(bench, *filter(None, [name]))


def _single(part: str) -> list[str]:
    """What of a part is measured by itself, its rows written before the next begins."""
    if part != "experiments":
        return [part]
    # Not above: what the measured processes import would have the report's libraries too.
    from benchmarks.experiments import NAMES

    return [f"{part}:{name}" for name in NAMES]


def _in_own_process(function: Callable, *arguments: object):
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
