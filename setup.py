"""Copy the default settings and the experiments into the wheel. All else is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithDefaults(build_py):
    """Copy them to tasks/defaults/. tasks/config_files.py finds them there. In a clone they stay at the top."""

    def run(self) -> None:
        """Copy the modules, then the defaults."""
        if not self.editable_mode:
            # An earlier build leaves its modules there.
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        if self.editable_mode:
            return
        defaults = Path(self.build_lib, "tasks", "defaults")
        defaults.mkdir(exist_ok=True)
        for name in ("config.ini", "central.ini"):
            shutil.copy(name, defaults)
        shutil.copytree("experiments", defaults / "experiments", dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithDefaults})
