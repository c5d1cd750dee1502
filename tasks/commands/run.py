"""The commands ``run``, ``export``, ``nightly`` and ``train-local``, which run the pipeline.

Several processes can train one model together (docs/how-to/gpu.md). Process 0 runs the pipeline.
"""

import logging
import shlex
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import luigi.configuration
import luigi.retcodes
from luigi.task_register import Register

from pipeline.artifacts.manifest import read_fetched
from pipeline.errors import SettingsError
from pipeline.settings.training import EXPORTERS
from pipeline.sources.detection import kind_at
from tasks import remote_cache
from tasks.commands.command import A_RUN, Parser, run_folder
from tasks.config_files import project_folder
from tasks.process import command_line, console, interrupt
from tasks.settings import Storage
from tasks.train import Train

if TYPE_CHECKING:
    import psutil

_POLL_SECONDS = 0.2
# Seconds for the processes of a group to end by themselves, and after each signal.
_ALONE_SECONDS, _GRACE_SECONDS = 5.0, 20.0

_logger = logging.getLogger(__name__)


def run(parser: Parser, argv: Sequence[str]) -> int:
    """Build all stale stages of Source, Records, Train and Report. This is the default command."""
    parser.epilog += (
        " Pass the path of your data to train on them. Train several runs with lists, such as --seeds 0,1,2. Repeat a "
        "stage and all later ones with --Force-stage Train."
    )
    parser.usage = "tensorcraft run [path of data] [flags and settings]"
    return _run(parser, _with_source(argv), "Report")


def _with_source(argv: Sequence[str]) -> list[str]:
    words, flags = command_line.words_and_flags(argv)
    # Tasks of Luigi begin with a capital letter, and so may a folder.
    is_task = bool(words) and words[0][:1].isupper() and not Path(words[0]).exists()
    if not words or is_task or words[0] in Register.task_names():
        return list(argv)
    path, *others = words
    console.configure()
    kind = kind_at(path)
    _logger.info("%s contains the data of [Source] dataset = %s.", path, kind)
    flags = {"--Source-dataset": kind, "--Source-path": path, **flags}
    return [*others, *(name if value is None else f"{name}={value}" for name, value in flags.items())]


def _run(parser: Parser, argv: Sequence[str], task: str) -> int:
    arguments = ["--module", "tasks", *_with_task(parser, argv, task)]
    is_in_group = any("processes" in word for word in arguments)
    is_in_group |= luigi.configuration.get_config().get("Train", "processes", "1") != "1"
    with command_line.in_force(arguments):
        # Process 0 runs the stages. The others train with it.
        if is_in_group and {"Report", "Train", "Export"} & {*arguments} and not (train := Train()).group.is_chief:
            train.follow()
            return 0
        command_line.require_scheduler()
        has_remote = bool(Storage().remote)
    try:
        luigi.retcodes.run_with_retcodes(arguments)
    except SystemExit as ended:
        if ended.code == 0 and has_remote:
            with command_line.in_force(arguments):
                remote_cache.put_pending()
        raise
    return 0


def export(parser: Parser, argv: Sequence[str]) -> int:
    """Export a run in formats for other programs, and compare each with the Keras model."""
    how = {"action": "extend", "nargs": "+", "default": [], "metavar": "FORMAT"}
    parser.add_argument("--format", help=f"formats to write, of {', '.join(EXPORTERS)}. See [Export] formats", **how)
    parser.add_argument("--run", help=f"{A_RUN} (default: the run of the present settings)")
    arguments, settings = parser.parse_known_args(argv)
    if arguments.format:
        settings.append(f"--Export-formats={','.join(arguments.format)}")
    return _run(parser, [*(_settings_of(arguments.run, settings) if arguments.run else []), *settings], "Export")


def _settings_of(run: str, settings: Sequence[str]) -> list[str]:
    """The flags that repeat a run. SettingsError: they would train another run now."""
    with command_line.in_force(["--module", "tasks", "Report", *settings]):
        from pipeline.runs.record import read_record

        folder = run_folder("--run", run)
        # The record of another machine may name any code of this one.
        if fetched := read_fetched(folder):
            raise SettingsError(f"--run: {folder.name} is from {fetched['remote']}. Pass its settings instead.")
        flags = shlex.split(read_record(folder).origin.command())[2:]
    with command_line.in_force(["--module", "tasks", "Report", *flags, *settings]):
        if not Train().is_resolved() or Train().output().folder != folder:
            raise SettingsError(
                f"--run: expected a run of the present code, data and configuration, got {folder.name}. Restore them, "
                "or export the run of the present settings without --run."
            )
    return flags


def nightly(parser: Parser, argv: Sequence[str]) -> int:
    """Make a scheduled run, keep its dated report and send a message if the outcome changed."""
    from tasks.schedule import scheduled

    return scheduled.run_scheduled(_with_task(parser, argv, "Nightly"))


def report_killed(parser: Parser, argv: Sequence[str]) -> int:
    """Record a scheduled run that was killed, as systemd describes it."""
    from tasks.schedule import scheduled

    return scheduled.report_killed(_with_task(parser, argv, "Nightly"))


def train_local(parser: Parser, argv: Sequence[str]) -> int:
    """Train one model with several processes of this machine, on JAX."""
    parser.add_argument("--processes", type=int, default=2, help="number of processes (default: 2)")
    arguments, settings = parser.parse_known_args(argv)
    if arguments.processes < 2:
        parser.error("--processes: expected 2 or more")
    flags = [f"--Train-processes={arguments.processes}", f"--Train-coordinator-address=127.0.0.1:{free_port()}"]
    # Each process would take all GPUs.
    flags += ["--Train-device=cpu", *settings]
    interrupt.listen()
    # Other commands need not spend the time of this import.
    import psutil

    processes: list[psutil.Popen] = []
    try:
        for number in range(arguments.processes):
            command, environment = command_line.child_command("Report", *flags, f"--Train-process-id={number}")
            processes.append(psutil.Popen(command, env=environment, cwd=project_folder()))
        while None in (codes := [process.poll() for process in processes]) and not any(codes):
            time.sleep(_POLL_SECONDS)
        code = next(filter(None, codes), 0)
        # The exit code of a shell for a process that a signal ended.
        return 128 - code if code < 0 else code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        # A terminal sends Ctrl-C to all processes. Another signal reaches this one alone.
        end(processes)


def free_port() -> int:
    """A free port of the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _with_task(parser: Parser, argv: Sequence[str], task: str) -> list[str]:
    settings = parser.parse_known_args(argv)[1]
    return settings if command_line.words_and_flags(settings)[0] else [task, *settings]


def end(processes: "list[psutil.Popen]") -> None:
    """Wait until the processes end. After a while, terminate and then kill them."""
    import psutil

    left = psutil.wait_procs(processes, _ALONE_SECONDS)[1]
    for ask in (psutil.Popen.terminate, psutil.Popen.kill):
        for process in left:
            ask(process)
        left = psutil.wait_procs(left, _GRACE_SECONDS)[1]
