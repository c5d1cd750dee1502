"""The commands of the command line, see __main__.py. Their common code parses flags, creates stages and finds runs."""

import argparse
import contextlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.artifacts import layout
from pipeline.artifacts.manifest import check_files, read_manifest
from pipeline.errors import DamagedArtifactError, SettingsError
from pipeline.registry import Registry
from pipeline.settings import SECTIONS
from pipeline.settings.schema import settings_of
from tasks.config_files import EXPERIMENT_FLAG
from tasks.data import Source
from tasks.settings import champion, in_force, root_folder
from tasks.stage import Stage, stages_up_to

if TYPE_CHECKING:
    from pipeline.runs.record import RunRecord

#: The function of each command. `summary` is its description.
COMMANDS = Registry(
    "commands",
    {
        "init": "tasks.commands.setup:init",
        "run": "tasks.commands.run:run",
        "status": "tasks.commands.artifacts:status",
        "report": "tasks.commands.runs:report",
        "doctor": "tasks.commands.setup:doctor",
        "verify": "tasks.commands.artifacts:verify",
        "predict": "tasks.commands.runs:predict",
        "serve": "tasks.commands.runs:serve",
        "export": "tasks.commands.run:export",
        "promote": "tasks.commands.runs:promote",
        "search": "tasks.commands.run:search",
        "experiments": "tasks.commands.runs:experiments",
        "experiments-table": "tasks.commands.runs:experiments_table",
        "diff": "tasks.commands.runs:diff",
        "clean-stale": "tasks.commands.artifacts:clean_stale",
        "push": "tasks.commands.artifacts:push",
        "pull": "tasks.commands.artifacts:pull",
        "nightly": "tasks.commands.run:nightly",
        "report-killed": "tasks.commands.run:report_killed",
        "verify-determinism": "tasks.commands.runs:verify_determinism",
        "tensorboard": "tasks.commands.runs:tensorboard",
        "train-local": "tasks.commands.run:train_local",
        "completion": "tasks.commands.setup:completion",
    },
)
LATEST, BEST, JUDGED = "latest", "best", "judged"
A_RUN = f"folder of a run, the beginning of its name or fingerprint, {LATEST}, {BEST}, {JUDGED}, or {layout.CHAMPION}"
#: The run of a command that is given none, see ``run_folder``.
DEFAULT_RUN = f"default: {layout.CHAMPION} if there is one, otherwise {BEST}"
# Sections begin with a capital letter.
_SETTING = re.compile(r"--[A-Z]")


def summary(command: Callable) -> str:
    """The first line of a command's docstring."""
    return (command.__doc__ or "").strip().partition("\n")[0]


class Parser(argparse.ArgumentParser):
    """A parser of the flags of a command. All other flags are settings."""

    def __init__(self, name: str, description: str) -> None:
        super().__init__(
            prog=f"tensorcraft {name}",
            description=description,
            epilog="Pass settings as flags, such as --Train-epochs 1. List them with --help-all.",
            # The beginning of a flag of ours may be a setting.
            allow_abbrev=False,
        )
        # tasks/__init__.py reads this flag before the parser does.
        help = "experiment, by the name of its file in experiments/"
        self.add_argument(EXPERIMENT_FLAG, metavar="NAME", help=help)
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help="show this help and all settings, and exit")

    def error(self, message: str) -> None:
        """Raise an error of one line, as all errors are."""
        raise SettingsError(f"command line: {message}. {' '.join(self.format_usage().split())}")

    def flags(self) -> list[str]:
        """The flags of the command."""
        return [flag for action in self._actions for flag in action.option_strings]


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        parser.print_help()
        for section in SECTIONS:
            print(f"\n[{section.section}]")
            for setting in settings_of(section):
                print(f"  --{section.section}-{setting.name.replace('_', '-')}  {setting.summary()}")
        parser.exit()


Body = Callable[[argparse.Namespace, list[Stage]], int]


def argument(*names: str, **options: object) -> tuple[tuple[str, ...], dict]:
    """An argument of a command, as ``add_argument`` takes it."""
    return names, options


def command(*arguments: tuple[tuple[str, ...], dict]) -> Callable[[Body], Callable[[Parser, Sequence[str]], int]]:
    """Make a command of a function of its arguments and the stages, from the source to the report."""

    def decorate(body: Body) -> Callable[[Parser, Sequence[str]], int]:
        def run(parser: Parser, argv: Sequence[str]) -> int:
            for names, options in arguments:
                parser.add_argument(*names, **options)
            # Values of settings are no positional arguments.
            own, settings = [], []
            for before, word in zip(["", *argv], argv, strict=False):
                is_value = _SETTING.match(before) and "=" not in before and not word.startswith("--")
                (settings if is_value or _SETTING.match(word) else own).append(word)
            values, others = parser.parse_known_args(own)
            settings += others
            words = ["--module", "tasks", "Report", *settings]
            with in_force(words, parser.flags()) as luigi_parser:
                return body(values, stages_up_to(luigi_parser.get_task_obj()))

        run.__doc__ = body.__doc__
        return run

    return decorate


def not_empty(text: str) -> str:
    """The type of an argument that must not be empty. make passes on variables that nobody set."""
    if not text:
        raise argparse.ArgumentTypeError("expected a value, got nothing")
    return text


def run_folder(argument: str, run: str | None) -> Path:
    """The folder of a run, by default of the champion or the best. It must be in the folder of runs."""
    parent = root_folder() / layout.RUNS
    if run in (None, layout.CHAMPION):
        if folder := champion():
            return folder
        if run:
            remedy = 'Choose a run with "tensorcraft promote RUN".'
            raise SettingsError(f"{argument}: expected a champion in {root_folder()}, found none. {remedy}")
    run = run or BEST
    runs = [path for path in layout.artifact_folders(parent) if path.is_dir() and path.resolve().parent == parent]
    if run == JUDGED:
        return _judged(argument, _finished(runs))
    if Path(run).resolve() in runs:
        return Path(run).resolve()
    matches = [path for path in runs if path.name.startswith(run) or path.name.rpartition("-")[2].startswith(run)]
    if len(matches) == 1:
        return matches[0]
    finished = _finished(matches or runs)
    if run == BEST and (best := _best(finished)):
        return parent / best
    if run in (LATEST, BEST):
        from pipeline.runs.record import is_placeholder

        # A command without the settings of a run on other data may have trained on placeholder data since.
        if real := [folder for folder, record in finished.items() if not is_placeholder(vars(record))]:
            return real[0]
    lines = "\n  ".join(["Runs:", *_described(finished)]) if finished else "Runs: none."
    raise SettingsError(f"{argument}: expected a run in {parent}, got {run!r}. Pass the {A_RUN}. {lines}")


def trained_run(argument: str, run: str | None) -> tuple[Path, "RunRecord"]:
    """The folder of an undamaged, finished run with weights, and its record. See ``run_folder``."""
    from pipeline.runs.metrics import WEIGHTS_NAME
    from pipeline.runs.record import read_record

    folder = run_folder(argument, run)
    record = read_record(folder)
    if not (folder / WEIGHTS_NAME).is_file():
        raise SettingsError(
            f"{argument}: expected a finished run with {WEIGHTS_NAME}, got {folder} with the status {record.status!r}."
        )
    check_files(folder, read_manifest(folder))
    return folder, record


def _judged(argument: str, finished: Mapping[Path, "RunRecord"]) -> Path:
    """The newest requested run of the newest report, which must have reached its thresholds."""
    folder, runs = root_folder() / layout.REPORT, []
    # While a run trains, the report has only a page.
    if (file := folder / layout.REPORT_DATA).is_file():
        check_files(folder, read_manifest(folder))
        report = json.loads(file.read_text(encoding="utf-8"))
        if report["gate"] and report["gate"]["passed"]:
            # The newest is the first. None was skipped if the gate passed. A retrained run has another time.
            newest = next((run for run in report["runs"] if run["fingerprint"] in report["current"]), {})
            key = newest.get("fingerprint"), newest.get("finished_at")
            runs = [run for run, record in finished.items() if (record.fingerprint, record.finished_at) == key]
    if not runs:
        raise SettingsError(
            f"{argument}: expected a report whose newest requested run reached thresholds of [Report] and is still "
            "there, found none. Run the pipeline with thresholds, such as not_worse."
        )
    return runs[0]


def _best(finished: Mapping[Path, "RunRecord"]) -> str:
    """The folder of the best run of the experiment, or of all without runs of it. "" if the report ranks none."""
    from pipeline.report.data.reading import read_or_none, read_run
    from pipeline.report.data.scoreboard import ranked, scenarios

    name = Source().experiment_name()
    chosen = [folder for folder, record in finished.items() if record.experiment == name] or finished
    runs = [read for folder in chosen if (read := read_or_none(read_run, folder))]
    return next((row.run.path.name for row in ranked(scenarios(runs))[0]), "")


def _finished(folders: Sequence[Path]) -> dict[Path, "RunRecord"]:
    """The records of the finished runs among these, newest first. Damaged runs are left out."""
    # This imports pydantic.
    from pipeline.runs.record import FINISHED, read_record

    records = {}
    for folder in folders:
        with contextlib.suppress(DamagedArtifactError):
            records[folder] = read_record(folder)
    finished = [(folder, record) for folder, record in records.items() if record.status == FINISHED]
    return dict(sorted(finished, key=lambda item: datetime.fromisoformat(item[1].finished_at), reverse=True))


def _described(records: Mapping[Path, "RunRecord"]) -> list[str]:
    """A line per run with its name, date, experiment and result on the test split."""
    from pipeline.report.formats import number, percent

    lines = []
    for folder, record in records.items():
        date = f"{datetime.fromisoformat(record.finished_at):%Y-%m-%d %H:%M} UTC"
        accuracy, loss = record.test_accuracy, record.test_loss
        result = f"loss {number(loss, 4)}" if accuracy is None else percent(accuracy, 2)
        lines.append("  ".join([folder.name, date, record.experiment, result]))
    return lines
