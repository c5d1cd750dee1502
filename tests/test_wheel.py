"""The wheel: it contains every data file, and a project outside a clone needs nothing else.

Building and installing use pip alone. The new environment takes all other packages from the one of the tests.
"""

import configparser
import email.parser
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from luigi_process import PROJECT

from pipeline.optional_packages import install_command
from tasks.config_files import experiments, settings_in

pytestmark = pytest.mark.slow

# Files at the top of the clone that the build reads.
SOURCES = ("pipeline", "tasks", "experiments", "config.ini", "central.ini", "pyproject.toml", "README.md", "LICENSE")
SMALL = ["--Source-dataset", "folder", "--Source-path", "flowers"]
SMALL += ["--Train-epochs", "1", "--Train-global-batch-size", "8", "--Records-train-shards", "2"]
# Variables of the tests' own processes that would hide a missing file.
FOREIGN = ("PYTHONPATH", "LUIGI_CONFIG_PATH", "TENSORCRAFT_EXPERIMENT", "TENSORCRAFT_IN_PROCESS", "MAKEFLAGS")


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel of the source distribution of a copy. A build leaves folders beside its sources."""
    copy, output = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheels")
    for name in (*SOURCES, "setup.py", "MANIFEST.in"):
        if (PROJECT / name).is_dir():
            shutil.copytree(PROJECT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(PROJECT / name, copy)
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(copy / 'dist')!r})"
    subprocess.run([sys.executable, "-c", code], cwd=copy, check=True, stdout=subprocess.DEVNULL)
    (sources,) = (copy / "dist").iterdir()
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(output), str(sources))
    (built,) = output.iterdir()
    return built


class Installed:
    """A new environment with the wheel, and an empty folder with a few images in ``flowers``."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.bin, self.project = folder / "environment" / "bin", folder / "project"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.bin.parent], check=True)
        pip("--python", str(self.bin / "python"), "install", "--no-deps", "--no-index", str(wheel))
        # A line with a folder is no place for .pth files, so the clone of the tests is not found through it.
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        (self.bin.parent / "lib" / version / "site-packages" / "tests.pth").write_text(sysconfig.get_path("purelib"))
        luigi = self.bin / "luigi"
        luigi.write_text(f"#!{self.bin}/python\nfrom luigi.cmdline import luigi_run\n\nluigi_run()\n")
        luigi.chmod(0o755)
        write_images(self.project / "flowers")

    def __call__(self, *command: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess:
        environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        environment |= {"PATH": f"{self.bin}:{environment['PATH']}", "TF_CPP_MIN_LOG_LEVEL": "3", **variables}
        how = {"capture_output": True, "text": True, "check": False, "timeout": 300}
        return subprocess.run(command, cwd=cwd or self.project, env=environment, **how)

    def ok(self, *command: str, **how) -> str:
        done = self(*command, **how)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout


def write_images(folder: Path) -> None:
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(0)
    for label, color in (("daisy", 60), ("tulip", 180)):
        (folder / label).mkdir(parents=True)
        for number in range(20):
            pixels = random.normal(color, 20, (16, 16, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{number}.png")


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"), wheel)


def test_the_wheel_contains_every_module_and_every_data_file(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        str(path.relative_to(PROJECT))
        for package in ("pipeline", "tasks")
        for path in (PROJECT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert expected - names == set()
    data = {f"tasks/defaults/{name}" for name in ("config.ini", "central.ini")}
    data |= {
        f"tasks/defaults/{path.relative_to(PROJECT)}" for path in (PROJECT / "experiments").rglob("*") if path.is_file()
    }
    assert data - names == set()
    metadata = f"{wheel.name.rsplit('-', 3)[0]}.dist-info/"
    assert {name for name in names - expected - data if not name.startswith(metadata)} == set()


def test_a_build_in_a_clone_leaves_out_modules_of_an_earlier_build(tmp_path):
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "config.ini", "central.ini"):
        shutil.copy(PROJECT / name, tmp_path)
    shutil.copytree(PROJECT / "experiments", tmp_path / "experiments")
    for name in ("build/lib/tasks/former.py", "tasks/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(tmp_path), str(tmp_path))
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    assert ("tasks/__init__.py" in names, "tasks/former.py" in names) == (True, False)


def test_the_metadata_name_the_license_the_commands_and_python(wheel):
    with zipfile.ZipFile(wheel) as archive:
        folder = f"{wheel.name.rsplit('-', 3)[0]}.dist-info"
        about = email.parser.Parser().parsestr(archive.read(f"{folder}/METADATA").decode())
        scripts = configparser.ConfigParser()
        scripts.read_string(archive.read(f"{folder}/entry_points.txt").decode())
        assert b"Apache License" in archive.read(f"{folder}/licenses/LICENSE")
    assert (about["Name"], about["Version"]) == ("tensorcraft-pipeline", "0.2.0")
    assert (about["License-Expression"], about["License-File"]) == ("Apache-2.0", "LICENSE")
    assert about["Requires-Python"] == "<3.14,>=3.11"
    assert set(scripts["console_scripts"]) == {"tensorcraft", "tensorcraft-worker"}
    # pip install without an extra is enough for a run.
    assert any(text.startswith("tensorflow<") for text in about.get_all("Requires-Dist"))


def test_a_project_of_ones_own_runs_from_the_wheel_alone(installed):
    assert "Wrote config.ini.\nWrote Makefile.\n" in installed.ok("tensorcraft", "init")
    project = installed.project
    # The names of our packages are common ones.
    for name in ("tasks.py", "pipeline.py"):
        (project / name).write_text("raise SystemExit('not ours')\n")
    installed.ok("tensorcraft", "run", *SMALL)
    assert (project / "data" / "report" / "report.html").is_file()
    states = json.loads(installed.ok("tensorcraft", "status", "--json", *SMALL))
    assert {state["state"] for state in states.values()} == {"fresh"}
    again = installed("tensorcraft", "run", *SMALL)
    assert (again.returncode, "Nothing to do" in again.stderr) == (0, True)
    # Luigi's own command finds the package too, and make has a target per command.
    luigi = installed("luigi", "--module", "tasks", "Report", *SMALL)
    assert luigi.returncode == 0, luigi.stderr
    assert installed.ok("make", "status", f"ARGS={' '.join(SMALL)}").count("fresh") == len(states)
    installed.ok("tensorcraft", "predict", "flowers")
    assert len((project / "predictions" / "predictions.csv").read_text().splitlines()) == 41
    installed.ok("tensorcraft", "nightly", "--date", "2026-11-01", *SMALL)
    assert list((project / "data" / "report" / "history").rglob("2026-11-01"))


def test_init_keeps_files_that_exist_unless_it_is_forced(installed, tmp_path):
    (tmp_path / "Makefile").write_text("mine:\n")
    assert "Wrote config.ini.\nKept the existing Makefile." in installed.ok("tensorcraft", "init", cwd=tmp_path)
    # It changes nothing, so the defaults of a later version apply.
    written, defaults = settings_in([tmp_path / "config.ini"]), settings_in([PROJECT / "config.ini"])
    assert written == {section: {} for section in defaults}
    lines = (tmp_path / "config.ini").read_text().splitlines()
    assert {f"#{name} = {value}".rstrip() for values in defaults.values() for name, value in values.items()} <= {*lines}
    assert "make config" not in "".join(lines)
    (tmp_path / "config.ini").write_text("[Train]\nepochs = 7\n")
    assert "Kept the existing config.ini." in installed.ok("tensorcraft", "init", cwd=tmp_path)
    assert (tmp_path / "config.ini").read_text() == "[Train]\nepochs = 7\n"
    assert "Wrote Makefile." in installed.ok("tensorcraft", "init", "--force", cwd=tmp_path)
    assert (tmp_path / "config.ini").read_text().splitlines() == lines


CODE = "import tasks; train = tasks.Train(); print(train.model, train.epochs, tasks.settings.root_folder())"


def test_settings_files_of_the_working_directory_override_those_of_the_wheel(installed, tmp_path):
    def settings(**variables: str) -> list[str]:
        return installed.ok("python", "-c", CODE, cwd=tmp_path, **variables).split()

    assert settings() == ["auto", "auto", str(tmp_path / "data")]
    assert settings(TENSORCRAFT_EXPERIMENT="flowers")[:2] == ["airbench_convnet_small", "24"]
    refused = installed("tensorcraft", "status", "--Source-dataset", "folder", cwd=tmp_path)
    assert refused.stderr.endswith("got ''. Change it in config.ini or pass --Source-path.\n")
    (tmp_path / "config.ini").write_text("[Train]\nepochs = 7\n[Storage]\nroot = elsewhere\n")
    assert settings() == ["auto", "7", str(tmp_path / "elsewhere")]
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "flowers.ini").write_text("# Mine\n[Train]\nmodel = mnist_cnn\n")
    (tmp_path / "experiments" / "mine.ini").write_text("# Mine too\n[Train]\nepochs = 0\n")
    refused = installed("tensorcraft", "status", "--experiment", "mine", cwd=tmp_path)
    assert refused.stderr.endswith("got 0. Change it in experiments/mine.ini or pass --Train-epochs.\n")
    (tmp_path / "experiments" / "mine.ini").write_text("# Mine too\n")
    assert settings(TENSORCRAFT_EXPERIMENT="flowers")[:2] == ["mnist_cnn", "7"]
    lines = installed.ok("tensorcraft", "experiments", cwd=tmp_path).splitlines()
    assert {line.split()[0] for line in lines} == {*experiments(), "mine"}
    unknown = installed("tensorcraft", "status", "--experiment", "minne", cwd=tmp_path)
    assert unknown.returncode == 2
    assert "Did you mean 'mine'?" in unknown.stderr
    states = installed.ok("tensorcraft", "status", "--experiment=mine", "--json", cwd=tmp_path)
    assert json.loads(states)["Source"]["state"] == "new"
    assert "mine" in installed.ok("tensorcraft", "completion", "bash", cwd=tmp_path)


def test_remedies_name_what_the_wheel_is_installed_by(installed):
    code = "from pipeline.optional_packages import install_command as of; print(of(), of('gpu'), of('notify'), sep='|')"
    ours = installed.ok("python", "-c", code, cwd=installed.bin).strip().split("|")
    name = "tensorcraft-pipeline"
    assert ours == [f"pip install {name}", f"pip install '{name}[gpu]'", f"pip install '{name}[notify]'"]
    assert [install_command(extra) for extra in ("", "gpu", "notify")] == [
        "make clean setup",
        "make setup EXTRA=gpu",
        "pip install '.[notify]'",
    ]
