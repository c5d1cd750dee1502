"""The commands of the command line, see __main__.py."""

from collections.abc import Callable

from pipeline.registry import Registry

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


def summary(command: Callable) -> str:
    """The first line of a command's docstring."""
    return (command.__doc__ or "").strip().partition("\n")[0]
