"""Apply each defect in ``patches/`` to a scratch copy of the project and see whether the tests notice it.

    python tests/mutation/run.py                             every patch, the fast tests that it lists
    python tests/mutation/run.py 7 lock-shared --suite slow  two patches, the slow tests that they list
    python tests/mutation/run.py --unchanged                 the listed tests without any defect: all must pass
    python tests/mutation/run.py --table before.jsonl after.jsonl

The working tree is never touched. This process imports the large libraries once and forks for each patch.
"""

import argparse
import importlib
import importlib.util
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PATCHES = Path(__file__).resolve().parent / "patches"
SUITES = {
    "fast": "not slow and not faults and not soak and not engine",
    "slow": "(slow or faults) and not soak and not engine",
}
# No module of the project, whose copy is imported after the fork, and none that reads the environment.
LIBRARIES = ("tensorflow", "keras", "apache_beam", "pydantic", "scipy.special", "requests")
TIME_LIMIT_SECONDS, TIME_LIMIT_SECONDS_OF_ALL = 600, 7_200


@dataclass(frozen=True)
class Patch:
    """A defect: its file, the sentence that describes it, and the test files likely to notice it, by suite."""

    path: Path | None
    name: str
    defect: str
    tests: dict[str, list[str]]

    @classmethod
    def read(cls, path: Path) -> "Patch":
        """The patch in a file; its header stands before the diff."""
        fields = dict(re.findall(r"^(Defect|Fast|Slow): *(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE))
        return cls(path, path.stem, fields["Defect"], {suite: fields[suite.title()].split() for suite in SUITES})

    @property
    def package(self) -> str:
        """The package that it changes, as in pipeline/shards."""
        changed = Path(re.search(r"^\+\+\+ b/(\S+)$", self.path.read_text(encoding="utf-8"), re.MULTILINE)[1])
        return str(changed if len(changed.parts) == 2 and changed.parts[0] == "pipeline" else changed.parent)


class Recorder:
    """A plugin of pytest that notes the first test that fails, why, and how many pass."""

    def __init__(self) -> None:
        self.killed_by, self.why, self.passed = "", "", 0

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported counts as a test that fails."""
        self._note(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setup, call or teardown of a test is done."""
        self.passed += report.passed and report.when == "call"
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed and not self.killed_by:
            self.killed_by = report.nodeid
            self.why = next((line[:200] for line in report.longreprtext.splitlines() if line.startswith("E ")), "")


def chosen(wanted: Sequence[str]) -> list[Patch]:
    """The patches of these names or numbers, all where none is given."""
    patches = [Patch.read(path) for path in sorted(PATCHES.glob("*.patch"))]
    known = {key: patch for patch in patches for key in (patch.name, patch.name[3:], str(int(patch.name[:2])))}
    if unknown := [name for name in wanted if name.lstrip("0") not in known and name not in known]:
        sys.exit(f"run.py: expected names or numbers of patches in {PATCHES}, got {', '.join(unknown)}")
    return [known.get(name) or known[name.lstrip("0")] for name in wanted] or patches


def copy_tree(tree: Path, folder: Path) -> None:
    """Copy the files of a checkout that git does not ignore, and make a repository of them: tests ask git for files."""
    listed = ["git", "-C", str(tree), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0")[:-1]:
        if os.path.lexists(tree / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, folder / name, follow_symlinks=False)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    subprocess.run(["git", "add", "--all"], cwd=folder, check=True)


def run_tests(place: Path, files: Sequence[str], suite: str) -> None:
    """Run the tests of a scratch copy, in a process of their own; leaves result.json. Never returns."""
    os.setsid()
    folder, temporary = place / "tree", place / "tmp"
    for number, file in (
        (0, os.open(os.devnull, os.O_RDONLY)),
        (1, log := os.open(place / "log", os.O_CREAT | os.O_WRONLY)),
        (2, log),
    ):
        os.dup2(file, number)
    os.chdir(folder)
    beside = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    os.environ |= {"PYTHONPATH": os.pathsep.join([str(folder), *beside]), "TMPDIR": str(temporary)}
    tempfile.tempdir = None
    # As if pytest had been started there.
    sys.path[:] = [str(folder), *(path for path in sys.path if path not in ("", str(Path(__file__).parent)))]
    sys.argv[:], sys.modules["__main__"] = ["pytest"], types.ModuleType("__main__")
    logging.getLogger().handlers.clear()
    for package in ("pipeline", "tasks"):
        if not Path(importlib.util.find_spec(package).origin).is_relative_to(folder):
            raise RuntimeError(f"{package} would not be imported from the scratch copy")
    recorder = Recorder()
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--hypothesis-seed=0"]
    options += [f"--basetemp={temporary / 'pytest'}", "-m", SUITES[suite], *files]
    code = pytest.main(options, plugins=[recorder])
    (place / "result.json").write_text(json.dumps({"code": int(code), **vars(recorder)}))
    sys.stdout.flush()
    os._exit(0)


def start(patch: Patch, tree: Path, suite: str, *, whole: bool) -> tuple[Path, int, str]:
    """Make the scratch copy of a patch and start its tests: folder, process, and the outcome where none is needed."""
    place = Path(tempfile.mkdtemp(prefix="mutation-")).resolve()
    (place / "tmp").mkdir()
    files = [file for file in patch.tests[suite] if (tree / file).exists()]
    if not whole and not files:
        return place, 0, "no-tests"
    copy_tree(tree, place / "tree")
    if patch.path and subprocess.run(["git", "apply", str(patch.path)], cwd=place / "tree", check=False).returncode:
        return place, 0, "does-not-apply"
    if (pid := os.fork()) == 0:
        try:
            run_tests(place, [] if whole else files, suite)
        finally:
            os._exit(1)
    return place, pid, ""


def result_of(place: Path, outcome: str) -> dict[str, str]:
    """Outcome, the test that killed the mutation and why."""
    if outcome:
        return {"outcome": outcome}
    if not (place / "result.json").exists():
        log = (place / "log").read_text(errors="replace") if (place / "log").exists() else ""
        return {"outcome": "error", "why": log[-2_000:]}
    found = json.loads((place / "result.json").read_text())
    if found["killed_by"]:
        return {"outcome": "killed", "killed_by": found["killed_by"], "why": found["why"]}
    known = {0: "survived" if found["passed"] else "no-tests", 5: "no-tests"}
    return {"outcome": known.get(found["code"], "error")}


def run(patches: Iterable[Patch], tree: Path, suite: str, *, whole: bool, jobs: int) -> Iterator[dict]:
    """The results of patches, each as soon as it is there."""
    limit = TIME_LIMIT_SECONDS_OF_ALL if whole else TIME_LIMIT_SECONDS
    waiting, running = list(patches), {}
    while waiting or running:
        while waiting and len(running) < jobs:
            patch, began = waiting.pop(0), time.monotonic()
            place, pid, outcome = start(patch, tree, suite, whole=whole)
            running[place] = (patch, pid, began, outcome)
        for place, (patch, pid, began, outcome) in list(running.items()):
            late = time.monotonic() - began > limit
            if pid and not late and os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
            if pid:
                # What its tests started goes with it.
                _kill(pid)
                if late:
                    os.waitpid(pid, 0)
            del running[place]
            found = result_of(place, "time limit" if late else outcome)
            shutil.rmtree(place, ignore_errors=True)
            yield {"patch": patch.name, "suite": suite, **found, "seconds": round(time.monotonic() - began, 1)}
        time.sleep(0.1)


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def table(files: Sequence[Path]) -> str:
    """A Markdown table of the results in files of JSON lines; of several results of one patch the last counts."""
    results = [{(one := json.loads(line))["patch"]: one for line in file.read_text().splitlines()} for file in files]
    lines = [
        "| | package | defect | " + " | ".join(file.stem for file in files) + " |",
        "|--:|---|---|" + "---|" * len(files),
    ]
    for patch in chosen(()):
        cells = []
        for found in (one.get(patch.name, {}) for one in results):
            by = found.get("killed_by", "").partition("::")[0]
            cells.append(f"killed by {by}" if found.get("outcome") == "killed" else found.get("outcome", "–"))
        lines.append(f"| {int(patch.name[:2])} | {patch.package} | {patch.defect} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Run, print a line for each patch, and end with 1 where one does not apply or its tests could not be run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patches", nargs="*", help="names or numbers; default: all")
    parser.add_argument("--suite", choices=SUITES, default="fast")
    parser.add_argument("--all", action="store_true", help="the whole suite instead of the files that a patch lists")
    parser.add_argument("--unchanged", action="store_true", help="the listed files without a patch")
    parser.add_argument("--tree", type=Path, default=PROJECT, help="the checkout to mutate; default: this one")
    parser.add_argument("--jobs", type=int, default=2, help="patches at a time")
    parser.add_argument("--output", type=Path, help="append the results to this file, as JSON lines")
    parser.add_argument("--table", type=Path, nargs="+", help="print a table of such files and run nothing")
    arguments = parser.parse_args()
    if arguments.table:
        print(table(arguments.table))
        return 0
    patches = chosen(arguments.patches)
    if arguments.unchanged:
        tests = {suite: list(dict.fromkeys(file for one in patches for file in one.tests[suite])) for suite in SUITES}
        patches = [Patch(None, "unchanged", "none", tests)]
    quiet = "TF_CPP_MIN_LOG_LEVEL" not in os.environ
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for library in LIBRARIES:
        importlib.import_module(library)
    if quiet:
        # The tests are to see what the libraries say.
        del os.environ["TF_CPP_MIN_LOG_LEVEL"]
    bad = 0
    for found in run(patches, arguments.tree.resolve(), arguments.suite, whole=arguments.all, jobs=arguments.jobs):
        print(
            f"{found['patch']}: {found['outcome']} {found.get('killed_by', '')} ({found['seconds']:.0f} s)", flush=True
        )
        bad += found["outcome"] in ("error", "does-not-apply")
        if arguments.output:
            with arguments.output.open("a") as file:
                file.write(json.dumps(found) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
