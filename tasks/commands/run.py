"""The commands ``run``, ``export``, ``search``, ``nightly`` and ``train-local``, which run the pipeline.

Several processes can train one model together (docs/how-to/gpu.md). Process 0 runs the pipeline. A trial of a search is
an ordinary run in a child process, ``tensorcraft Train``, which waits for the lock of the storage root. The settings
identify it, so a fresh run is reused, and an interrupted one is resumed.
"""

import logging
import os
import shlex
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import luigi.configuration
import luigi.retcodes
from luigi.task_register import Register

from pipeline.artifacts import layout
from pipeline.artifacts.fingerprint import fingerprint
from pipeline.artifacts.manifest import read_fetched
from pipeline.errors import DamagedArtifactError, PipelineError, SettingsError, WorkerDiedError, refuse
from pipeline.optional_packages import install_command
from pipeline.problems import problem_class
from pipeline.settings.report import SWEPT
from pipeline.settings.search_space import parse_space, train_settings
from pipeline.settings.training import EXPORTERS
from pipeline.sources.file_source import kind_at
from tasks import remote_cache
from tasks.commands import A_RUN, Parser, not_empty, run_folder
from tasks.data import Records
from tasks.process import console, interrupt
from tasks.settings import (
    Metrics,
    Notify,
    Storage,
    child_command,
    in_force,
    require_scheduler,
    root_folder,
    words_and_flags,
)
from tasks.train import Train

if TYPE_CHECKING:
    from pipeline.runs.study import Study

# The best settings of a search are trained with so many more seeds.
MORE_SEEDS = 2
# Exit codes that other settings may avoid, also of a process without memory. Others, as of a full disk, end the search.
_OF_THE_TRIAL = (0, 1, 2, 137, None)
_POLL_SECONDS = 0.5
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
    words, flags = words_and_flags(argv)
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
    with in_force(arguments):
        # Process 0 runs the stages. The others train with it.
        if is_in_group and {"Report", "Train", "Export"} & {*arguments} and not (train := Train()).group.is_chief:
            train.follow()
            return 0
        require_scheduler()
        # No stage reads these, and each refuses invalid ones. Other runs may lack the variable with the address.
        if any(word.rpartition("=")[2] == "Nightly" for word in arguments):
            Notify(), Metrics()
        has_remote = bool(Storage().remote)
    try:
        luigi.retcodes.run_with_retcodes(arguments)
    except SystemExit as ended:
        # Parsing the command line again takes as long as a twentieth of a run with nothing to do.
        if ended.code == 0 and has_remote:
            with in_force(arguments):
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
    with in_force(["--module", "tasks", "Report", *settings]):
        from pipeline.runs.record import read_record

        folder = run_folder("--run", run)
        # The record of another machine may name any code of this one.
        if fetched := read_fetched(folder):
            raise SettingsError(f"--run: {folder.name} is from {fetched['remote']}. Pass its settings instead.")
        flags = shlex.split(read_record(folder).origin.command())[2:]
    with in_force(["--module", "tasks", "Report", *flags, *settings]):
        if not Train().is_resolved() or Train().output().folder != folder:
            raise SettingsError(
                f"--run: expected a run of the present code, data and configuration, got {folder.name}. Restore them, "
                "or export the run of the present settings without --run."
            )
    return flags


def nightly(parser: Parser, argv: Sequence[str]) -> int:
    """Make a scheduled run, keep its dated report and send a message if the outcome changed."""
    from tasks import scheduled

    words = _with_task(parser, argv, "Nightly")
    console.configure()
    with scheduled.settings(words):
        # The run itself reports an unusable root.
        with suppress(PipelineError):
            console.log_as(Storage().log_format)
        return scheduled.record(scheduled.run_child(words)).exit_code


def report_killed(parser: Parser, argv: Sequence[str]) -> int:
    """Record a scheduled run that was killed, as systemd describes it."""
    from tasks import scheduled

    console.configure()
    with scheduled.settings(_with_task(parser, argv, "Nightly")):
        outcome, path = scheduled.outcome_from_systemd(os.environ), scheduled.outcome_path()
        previous = scheduled.read_outcome(path) if path else None
        if previous and previous.invocation == outcome.invocation:
            _logger.info("%s: already reported.", outcome.task)
        else:
            scheduled.record(outcome)
    return 0


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
    ranks, code = range(arguments.processes), 128 + signal.SIGINT
    with suppress(KeyboardInterrupt):
        code = _run_children([child_command("Report", *flags, f"--Train-process-id={n}") for n in ranks])
        if names := [each.name for each in signal.Signals if each == code - 128]:
            ended = f"one of the {arguments.processes} processes was ended by {names[0]}"
            remedy = "Finished stages and epochs are kept. Run the same command again to resume."
            console.show(WorkerDiedError(f"[Train] processes: {ended}. {remedy}"))
    return code


def _run_children(
    commands: Sequence[tuple[list[str], dict[str, str]]], is_hopeless: Callable[[], bool] | None = None
) -> int | None:
    """Run commands until all have ended or one fails. Return its exit code, or None if it is hopeless."""
    # Other commands need not spend the time of this import.
    import psutil

    processes: list[psutil.Popen] = []
    try:
        for command, environment in commands:
            processes.append(psutil.Popen(command, env=environment))
        while None in (codes := [process.poll() for process in processes]) and not any(codes):
            if is_hopeless and is_hopeless():
                processes[0].send_signal(signal.SIGINT)
                return None
            time.sleep(_POLL_SECONDS)
        code = next(filter(None, codes), 0)
        # The exit code of a shell for a process that a signal ended.
        return 128 - code if code < 0 else code
    finally:
        # A terminal sends Ctrl-C to all processes. Another signal reaches this one alone.
        left = psutil.wait_procs(processes, _ALONE_SECONDS)[1]
        for ask in (psutil.Popen.terminate, psutil.Popen.kill):
            for process in left:
                ask(process)
            left = psutil.wait_procs(left, _GRACE_SECONDS)[1]


def free_port() -> int:
    """A free port of the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _with_task(parser: Parser, argv: Sequence[str], task: str) -> list[str]:
    settings = parser.parse_known_args(argv)[1]
    return settings if words_and_flags(settings)[0] else [task, *settings]


def search(parser: Parser, argv: Sequence[str]) -> int:
    """Search the best settings of [Train] on the validation split, with Optuna."""
    parser.usage = "tensorcraft search [EXPERIMENT] --space SPACE [flags and settings]"
    help = "settings to try, such as 'learning_rate=log:1e-4:1e-2, augment=[none, flip]'"
    parser.add_argument("--space", required=True, type=not_empty, help=help)
    parser.add_argument("--trials", type=int, default=20, help="number of trials of all processes (default: 20)")
    # config_files.py has taken the experiment.
    words = argv[1:] if argv and not argv[0].startswith("-") else argv
    arguments, flags = parser.parse_known_args(words)
    if arguments.trials < 1:
        parser.error("--trials: expected 1 or more")
    space = parse_space(arguments.space)
    with in_force(["--module", "tasks", "Train", *flags], parser.flags()):
        train, records = Train(), Records()
        try:
            from pipeline.runs.study import Study
        except ModuleNotFoundError as error:
            remedy = f"Install it with: {install_command('search')}"
            raise SettingsError(f"search: the package {error.name} is not installed. {remedy}") from error
        if code := _child("Source", flags):
            return code
        if "validation" not in records.num_examples():
            expected, hint = "more than 0, as a search never uses the test split", " 0.1 is a tenth of train."
            refuse("Records", "validation_share", expected, records.validation_share, hint)
        inputs = fingerprint({"train": train.digest(), "records": records.output().expected, "space": f"{space}"})
        name = f"{train.experiment_name().replace('/', '-')}-{inputs[:12]}"
        metric = f"validation_{problem_class(records.source().problem).chosen_by}"
        with closing(Study(root_folder() / layout.SEARCHES, name, space, metric=metric, seed=train.seed)) as study:
            return _search(study, arguments.trials, flags)


def _search(study: "Study", requested: int, flags: Sequence[str]) -> int:
    """Make the trials, repeat the best settings and write the report. Return the exit code."""
    write = partial(study.write, Train().experiment_name(), requested, _settings_file)
    while trial := study.begin(requested):
        _logger.info("Trial %d: %s", trial.number, _spelled(study.settings(trial)))
        code, value = _train(study, study.settings(trial), flags, trial)
        if code not in _OF_THE_TRIAL:
            # The next start tries it again.
            return code
        study.end(trial, value, is_pruned=code is None)
        done = next(one for one in write().trials if one.number == trial.number)
        outcome = done.state, done.epochs, study.metric, done.mean()
        _logger.info("Trial %d: %s after epoch %d, %s %.4f", done.number, *outcome)
        if code and not study.best():
            return code
    if any(trial.state == "running" for trial in write().trials):
        _logger.info("The other trials run in other processes. The last process repeats the best settings.")
        return 0
    for one in study.best():
        for seed in range(study.seed + 1, study.seed + 1 + MORE_SEEDS):
            if str(seed) not in one.values:
                _logger.info("Seed %d of trial %d: %s", seed, one.number, _spelled(one.settings))
                code, value = _train(study, {**one.settings, "seed": seed}, flags)
                if code not in _OF_THE_TRIAL:
                    return code
                if code:
                    _logger.warning("Seed %d of trial %d failed. Its settings are ranked last.", seed, one.number)
                study.repeat(one.number, seed, value)
    if not (best := write().best):
        raise SettingsError(
            "--space: expected settings that train, but no trial has finished. The log has the reasons."
        )
    for one in best:
        print(f"{study.metric} {one.mean():.4f} over {len(one.values)} seeds: {_spelled(one.settings)}")
    print(f"Best settings: {study.folder / study.name}.ini", flush=True)
    lists = [f"--Report-{name.replace('_', '-')}=[]" for name in SWEPT]
    # A failed training would fail again.
    seeds = f"--Report-seeds={','.join(seed for seed, value in best[0].values.items() if value is not None)}"
    return _child("Report", [*flags, *_flags(best[0].settings), *lists, seeds])


def _train(
    study: "Study", settings: Mapping[str, Any], flags: Sequence[str], trial: Any = None
) -> tuple[int | None, float | None]:
    """Train a run. Return its exit code, None if ``trial`` was pruned, and the validation metric of a finished run."""
    from pipeline.runs.search import read_epochs, read_result

    train, epochs = Train(**train_settings(settings)), {}

    def is_hopeless() -> bool:
        found = {}
        # The child may have downloaded the weights, and it may rename the folder at any time.
        train.__dict__.pop("initial", None)
        with suppress(DamagedArtifactError):
            if train.is_resolved():
                folder = train.output().folder
                found = read_epochs(next(folder.parent.glob(f".{folder.name}.*.tmp"), folder), study.metric)
        new = {epoch: value for epoch, value in found.items() if epoch not in epochs}
        epochs.update(new)
        for epoch, value in new.items():
            trial.report(value, epoch)
        return bool(new) and max(epochs) < train.settings.epochs and trial.should_prune()

    code = _child("Train", [*flags, *_flags(settings)], is_hopeless if trial else None)
    # A run may finish while it is interrupted.
    if code is None and train.output().status().is_fresh:
        code = 0
    if code != 0:
        return code, None
    if trial:
        is_hopeless()
    return code, read_result(train.output().folder, study.metric)


def _child(task: str, flags: Sequence[str], is_hopeless: Callable[[], bool] | None = None) -> int | None:
    """Run a stage in a child process. Return its exit code, or None if it was interrupted because it is hopeless."""
    return _run_children([child_command(task, *flags, "--Storage-on-busy=wait")], is_hopeless)


def _flags(settings: Mapping[str, Any]) -> list[str]:
    return [f"--Train-{name.replace('_', '-')}={value}" for name, value in train_settings(settings).items()]


def _spelled(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def _settings_file(settings: Mapping[str, Any]) -> str:
    """Format the settings of a run as a file for experiments/."""
    lines = ["# The best settings of a search on the validation split"]
    for section, texts in Train(**train_settings(settings)).origin().settings.items():
        lines += ["", f"[{section}]", *(f"{name} = {text.replace('%', '%%')}" for name, text in texts.items())]
    return "\n".join([*lines, ""])
