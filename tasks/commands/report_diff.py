"""``make report-diff A=… B=…``: what differs between two runs."""

import shutil
from pathlib import Path

from pipeline.errors import SettingsError
from tasks.commands import command
from tasks.storage import root_folder
from tasks.train import Train


def main(argv: list[str]) -> int:
    """Print a table of what differs between the runs A and B."""
    about = "What differs between two runs: settings, data, code, versions, hardware, metrics."
    parser = command.parser("report-diff", about)
    for name in ("A", "B"):
        parser.add_argument(name, help="a run's folder, or the beginning of its name or fingerprint")
    arguments, overrides = parser.parse_known_args(argv)
    with command.stages_of(overrides):
        folders = [_folder_of(run) for run in (arguments.A, arguments.B)]
    from pipeline.report.diff import compare_runs, format_differences

    width = shutil.get_terminal_size((120, 24)).columns
    print(format_differences(compare_runs(*folders), tuple(folder.name for folder in folders), width=width), end="")
    return 0


def _folder_of(run: str) -> Path:
    if Path(run).is_dir():
        return Path(run)
    runs = sorted((root_folder() / Train.kind).glob("[!.]*"))
    found = [folder for folder in runs if folder.name.startswith(run) or folder.name.rpartition("-")[2].startswith(run)]
    if not run or len(found) != 1:
        known = ", ".join(folder.name for folder in found or runs) or "none"
        raise SettingsError(f"A, B: expected a run's folder or the beginning of its name, got {run!r}; known: {known}")
    return found[0]


if __name__ == "__main__":
    command.run(main)
