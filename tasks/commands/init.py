"""The command ``init``, which writes the files of a new project for users of an installed wheel."""

import re
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
    files = {"config.ini": commented((defaults[0] / "config.ini").read_text(encoding="utf-8"))}
    files["Makefile"] = Path(__file__).with_suffix(".mk").read_text(encoding="utf-8")
    for name, content in files.items():
        try:
            with (project / name).open("w" if is_forced else "x", encoding="utf-8") as file:
                file.write(content)
            print(f"Wrote {name}.")
        except FileExistsError:
            print(f"Kept the existing {name}. Pass --force to overwrite it.")
        except OSError as error:
            raise StorageError(f"{project / name}: cannot be written ({error.strerror}).") from error
    print("Put your images into a folder per label, such as flowers/daisy/. Next, run: tensorcraft run flowers")
    return 0


def commented(defaults: str) -> str:
    """The default settings as comments, so that those of a later version apply to all that the user leaves alone."""
    settings = re.sub(r"^(?=\w+ =)", "#", re.sub(r".* make config .*\n\n", "", defaults), flags=re.MULTILINE)
    return f"# Remove the # before a setting to change it.\n\n{settings}"
