"""``init``: the files of a new project, for users of an installed wheel."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.errors import SettingsError, StorageError
from tasks.commands.command import Parser
from tasks.config_files import settings_folders


def init(parser: Parser, argv: Sequence[str]) -> int:
    """Write config.ini and a Makefile into the working directory."""
    parser.add_argument("--force", action="store_true", help="overwrite files that exist")
    is_forced = parser.parse_args(argv).force
    *defaults, project = settings_folders()
    if not defaults:
        raise SettingsError(f"init: expected an installed wheel, got the clone {project}. Edit its config.ini.")
    sources = {"config.ini": defaults[0] / "config.ini", "Makefile": Path(__file__).with_suffix(".mk")}
    for name, source in sources.items():
        content = source.read_bytes()
        try:
            with (project / name).open("wb" if is_forced else "xb") as file:
                file.write(content)
            print(f"Wrote {name}.")
        except FileExistsError:
            print(f"Kept the existing {name}. Pass --force to overwrite it.")
        except OSError as error:
            raise StorageError(f"{project / name}: cannot be written ({error.strerror}).") from error
    print("Next, run: tensorcraft run --Source-dataset folder --Source-path <folder with a folder of images per label>")
    return 0
