"""The commands ``diff``, ``promote``, ``experiments``, ``experiments-table`` and ``tensorboard`` for runs."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.artifacts import layout
from pipeline.artifacts.manifest import check_files, read_manifest
from pipeline.errors import SettingsError
from pipeline.settings.experiments import description
from tasks import config_files
from tasks.commands.command import A_RUN, Parser, argument, command, not_empty, run_folder, trained_run
from tasks.report import Report, published_rows
from tasks.settings import root_folder
from tasks.stage import Stage
from tasks.train import Train


@command(*(argument(name, type=not_empty, help=A_RUN) for name in ("A", "B")))
def diff(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Show the differences between two runs."""
    folders = [run_folder(name, getattr(arguments, name)) for name in ("A", "B")]
    from pipeline.report import compare_runs, format_differences

    print(format_differences(compare_runs(*folders), tuple(folder.name for folder in folders)), end="")
    return 0


@command(argument("run", metavar="RUN", type=not_empty, help=A_RUN))
def promote(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Make a run the champion, which other commands use by default."""
    folder, _ = trained_run("RUN", arguments.run)
    check_files(folder, read_manifest(folder))
    link = root_folder() / layout.CHAMPION
    if link.exists() and not link.is_symlink():
        raise SettingsError(f"{link}: expected a link to a run, got a file or folder. Move it elsewhere.")
    before = Path(os.readlink(link)).name if link.is_symlink() else "none"
    new_link = link.with_name(f".{link.name}-{os.getpid()}")
    new_link.unlink(missing_ok=True)
    new_link.symlink_to(Path(layout.RUNS, folder.name))
    os.replace(new_link, link)
    print(f"Champion before: {before}\nChampion now:    {folder.name}")
    return 0


def experiments(parser: Parser, argv: Sequence[str]) -> int:
    """List the experiments with their descriptions."""
    parser.parse_args(argv)
    files = config_files.experiments()
    width = max(map(len, files), default=0) + 2
    for name, path in files.items():
        print(f"{name:{width}}{description(path)}")
    return 0


@command()
def experiments_table(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Print the results of each experiment as Markdown."""
    report = next(stage for stage in stages if isinstance(stage, Report))
    from pipeline.report import build_report, format_experiments

    folders = [folder for folder, _ in report.whole_runs()]
    table = format_experiments(build_report(folders, current=[], published=published_rows()))
    if not table:
        raise SettingsError(f'{root_folder()}: expected finished runs, found none. Run "tensorcraft run" first.')
    print(table, end="")
    return 0


@command(
    argument("--port", default="6006", help="port to listen on. 0 selects a free port (default: 6006)"),
    argument(
        "--load_fast",
        default="auto",
        help="TensorBoard's fast data loader. Pass true, false or auto (default: auto)",
    ),
)
def tensorboard(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Start TensorBoard with all runs, on this machine only."""
    runs = root_folder() / Train.kind
    print(f"TensorBoard shows {runs}{'' if runs.is_dir() else ', which has no runs yet'}.", flush=True)
    flags = {"logdir": runs, "host": "127.0.0.1", "port": arguments.port, "load_fast": arguments.load_fast}
    program = [sys.executable, "-m", "tensorboard.main", *(f"--{name}={value}" for name, value in flags.items())]
    os.execv(program[0], program)
