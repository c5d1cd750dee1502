"""Suite: runs the parts, and writes results.json and docs/results.md."""

import argparse
import importlib
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import results
from benchmarks.comparison import ROUNDS, Comparison
from benchmarks.data import Bench, prepare
from pipeline import machine
from pipeline.errors import PipelineError


def main() -> int:
    """Measure the parts. Return 0 if all could be measured, otherwise the exit code of the last error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="part",
        help=f"{', '.join(results.PARTS)} by default, also {', '.join(results.MORE_PARTS)}",
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of each comparison ({ROUNDS})")
    arguments = parser.parse_args()
    parts = [one for part in arguments.parts or results.PARTS for one in _single(part)]
    known = [one for part in (*results.PARTS, *results.MORE_PARTS) for one in (part, *_single(part))]
    if unknown := {*parts} - {*known}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(dict.fromkeys(known))}")
    # Inherited by every process below.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.update(machine.onednn_variables(os.environ))
    with tempfile.TemporaryDirectory(prefix="tensorcraft-bench-") as folder:
        try:
            bench = _in_own_process(prepare, Path(folder), arguments.rounds)
        except PipelineError as error:
            print(f"benchmarks: {error}", file=sys.stderr)
            return error.exit_code
        code = 0
        for part in parts:
            started = time.monotonic()
            try:
                measured = [one.to_json() for one in _in_own_process(measure, part, bench)]
            # Later parts may take hours and need other data.
            except PipelineError as error:
                print(f"benchmarks: {part}: {error}", file=sys.stderr)
                code = error.exit_code
                continue
            print(f"{part}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
            results.show(measured)
            results.write(part, measured, datetime.now(UTC).date().isoformat())
    return code


def measure(part: str, bench: Bench) -> list[Comparison]:
    """Return the comparisons of a part. Called in a new process."""
    module, _, name = part.partition(":")
    return importlib.import_module(f"benchmarks.{module}").measure(bench, *filter(None, [name]))


def _single(part: str) -> list[str]:
    """Parts of a part whose rows are written before the next begins."""
    if part != "experiments":
        return [part]
    # Measured processes must not import the libraries of the report.
    from benchmarks.experiments import NAMES

    return [f"{part}:{name}" for name in NAMES]


def _in_own_process(function: Callable, *arguments: object):
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
