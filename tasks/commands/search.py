"""The command ``search``, which tries settings of [Train] with Optuna.

A trial is an ordinary run in a child process, ``tensorcraft Train``, which waits for the lock of the storage root. The
settings identify it, so a fresh run is reused, and an interrupted one is resumed.
"""

import configparser
import io
import logging
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from pipeline.artifacts import layout
from pipeline.artifacts.fingerprint import fingerprint
from pipeline.errors import DamagedArtifactError, SettingsError
from pipeline.optional_packages import install_command
from pipeline.problems import problem_class
from pipeline.settings.report import SWEPT
from pipeline.settings.search_space import parse_space, train_settings
from pipeline.settings.setting_error import refuse
from tasks.commands.command import Parser, not_empty
from tasks.commands.run import end
from tasks.data import Records
from tasks.process import command_line
from tasks.settings import root_folder
from tasks.train import Train

if TYPE_CHECKING:
    from pipeline.runs.study import Study

_POLL_SECONDS = 0.5
# The best settings are trained with so many more seeds.
_MORE_SEEDS = 2
# Exit codes that other settings may avoid, also of a process without memory. Others, as of a full disk, end the search.
_OF_THE_TRIAL = (0, 1, 2, 137, None)

_logger = logging.getLogger(__name__)


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
    with command_line.in_force(["--module", "tasks", "Train", *flags], parser.flags(), parser.prog):
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
        for seed in range(study.seed + 1, study.seed + 1 + _MORE_SEEDS):
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
    from pipeline.runs.search import read_result

    train, epochs = Train(**train_settings(settings)), {}

    def is_hopeless() -> bool:
        new = {epoch: value for epoch, value in _epochs(train, study.metric).items() if epoch not in epochs}
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


def _epochs(train: Train, metric: str) -> dict[int, float]:
    """The validation metric by epoch of a run, finished or not."""
    from pipeline.runs.search import read_epochs

    # The child may have downloaded the weights, and it may rename the folder at any time.
    train.__dict__.pop("initial", None)
    with suppress(DamagedArtifactError):
        if train.is_resolved():
            folder = train.output().folder
            return read_epochs(next(folder.parent.glob(f".{folder.name}.*.tmp"), folder), metric)
    return {}


def _child(task: str, flags: Sequence[str], is_hopeless: Callable[[], bool] | None = None) -> int | None:
    """Run a stage in a child process. Return its exit code, or None if it was interrupted because it is hopeless."""
    # Other commands need not spend the time of this import.
    import psutil

    command, environment = command_line.child_command(task, *flags, "--Storage-on-busy=wait")
    process = psutil.Popen(command, env=environment)
    try:
        while (code := process.poll()) is None:
            if is_hopeless and is_hopeless():
                process.send_signal(signal.SIGINT)
                return None
            time.sleep(_POLL_SECONDS)
        # The exit code of a shell for a process that a signal ended.
        return 128 - code if code < 0 else code
    finally:
        # A terminal sends Ctrl-C to the child too. Another signal reaches this process alone.
        end([process])


def _flags(settings: Mapping[str, Any]) -> list[str]:
    return [f"--Train-{name.replace('_', '-')}={value}" for name, value in train_settings(settings).items()]


def _spelled(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def _settings_file(settings: Mapping[str, Any]) -> str:
    """Format the settings of a run as a file for experiments/."""
    parser, file = configparser.ConfigParser(interpolation=None), io.StringIO()
    sections = Train(**train_settings(settings)).changed_settings().items()
    parser.read_dict({name: {key: text.replace("%", "%%") for key, text in texts.items()} for name, texts in sections})
    file.write("# The best settings of a search on the validation split\n\n")
    parser.write(file)
    return file.getvalue()
