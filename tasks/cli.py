"""The command line: ``python -m tasks <command>``, installed as ``tensorcraft <command>``.

The flags that follow are settings, such as ``--Train-epochs 1``, or flags of the command. A Luigi task in place of the
command runs that task with Luigi's own flags, as in ``python -m tasks Report --workers 2``.
"""

import importlib
import os
import signal
import sys
from collections.abc import Sequence

#: Name → function and description. A module is imported when its command is called.
COMMANDS = {
    "run": ("tasks.commands.run:run", "Build what is stale of Source, Records, Train and Report. This is the default."),
    "status": ("tasks.commands.status:status", "Show the state of each stage, and why it is not fresh."),
    "doctor": ("tasks.commands.doctor:doctor", "Check whether a run would work here, and on which hardware."),
    "verify": ("tasks.commands.verify:verify", "Read every artifact under the storage root to the last byte."),
    "predict": ("tasks.commands.predict:predict", "Apply the model of a run to a folder of images or texts."),
    "export": ("tasks.commands.run:export", "Write the run as SavedModel and LiteRT, each compared with Keras."),
    "experiments": (
        "tasks.commands.runs:experiments",
        "List the files in experiments/, and which data are here.",
    ),
    "experiments-table": ("tasks.commands.runs:experiments_table", "Print the results of each experiment as Markdown."),
    "diff": ("tasks.commands.runs:diff", "Show the differences between two runs."),
    "clean-stale": ("tasks.commands.artifacts:clean_stale", "List the artifacts that nothing needs, or remove them."),
    "push": ("tasks.commands.artifacts:push", "Upload the artifacts of the settings to [Storage] remote."),
    "pull": ("tasks.commands.artifacts:pull", "Download the artifacts of the settings from [Storage] remote."),
    "nightly": ("tasks.commands.run:nightly", "Run, keep the report of the date, and notify if the outcome changed."),
    "report-killed": ("tasks.commands.run:report_killed", "Report the scheduled run that systemd describes."),
    "verify-determinism": (
        "tasks.commands.determinism:verify_determinism",
        "Train again and compare the weights.",
    ),
    "tensorboard": ("tasks.commands.runs:tensorboard", "Show all runs in TensorBoard, on this machine only."),
    "train-local": ("tasks.commands.train_local:train_local", "Train with several processes of this machine, on JAX."),
    "train-worker": ("tasks.commands.train_local:train_worker", "Train with process 0, which runs on another host."),
}
_RENAMED = {"unattended": "nightly", "aftermath": "report-killed", "on_failure": "report-killed", "report_diff": "diff"}


def main() -> None:
    """Run the command of ``sys.argv`` and exit. An error for the user is one line and has its own exit code."""
    from tasks.process import console
    from tasks.process.logs import for_the_user
    from tasks.sections import log_format_of

    try:
        code = dispatch(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has left, as head does. Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    except Exception as error:
        # Luigi wraps some of our errors.
        known = for_the_user(error)
        if known is None:
            raise
        console.show(known, log_format=log_format_of(sys.argv[1:]))
        code = known.exit_code
    sys.exit(code)


def dispatch(argv: Sequence[str]) -> int:
    """Run a command line. Return its exit code."""
    from pipeline.config.refusal import closest
    from pipeline.errors import SettingsError
    from tasks.commands.command import Parser

    name, rest = (argv[0], argv[1:]) if argv else ("run", [])
    if name in ("-h", "--help"):
        width = max(map(len, COMMANDS))
        print("usage: tensorcraft <command> [flags and settings]\n")
        print("\n".join(f"  {command:{width}}  {text}" for command, (_, text) in COMMANDS.items()))
        print("\n<command> --help lists the flags of a command, and --help-all the settings too.")
        return 0
    # Tasks of Luigi begin with a capital letter.
    if name.startswith("-") or name[:1].isupper():
        name, rest = "run", argv
    if name not in COMMANDS:
        raise SettingsError(
            f"command line: expected a command, got {name!r}.{closest(name, [*COMMANDS])} "
            "tensorcraft --help lists them."
        )
    target, description = COMMANDS[name]
    module, _, function = target.partition(":")
    return getattr(importlib.import_module(module), function)(Parser(name, description), rest)


def refuse_former_spelling(argv: Sequence[str]) -> None:
    """Refuse ``python -m tasks.commands.status`` and the like. Delete this after one release.

    Raises:
        SystemExit: with the new spelling on stderr.
    """
    module = argv[argv.index("-m") + 1] if "-m" in argv[:-1] else ""
    folder, _, name = module.rpartition(".")
    if folder in ("tasks.commands", "tasks.operations") or module in ("tasks.unattended", "tasks.aftermath"):
        name = _RENAMED.get(name, name.replace("_", "-"))
        print(f"ERROR SettingsError: python -m {module} is now: python -m tasks {name}", file=sys.stderr)
        raise SystemExit(2)
