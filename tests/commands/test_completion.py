"""``tensorcraft completion``: the script completes commands, flags and values in a shell, and starts no Python."""

import resource
import shutil
import subprocess

import pytest

from pipeline.settings import SECTIONS
from pipeline.settings.schema import settings_of
from pipeline.settings.training import MODELS
from tasks.__main__ import COMMANDS
from tasks.config_files import experiments

MOST_SECONDS = 0.3
# As bash calls the function of a command for the word before the cursor.
BASH = """
PATH=/nowhere
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_shtab_tensorcraft tensorcraft "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(first_run, tmp_path_factory):
    """Shell → file with its script."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh", "fish"):
        done = first_run.command("completion", shell)
        assert (done.returncode, done.stderr) == (0, "")
        (folder / shell).write_text(done.stdout)
    return folder


def words(scripts, *line: str) -> list[str]:
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH, "bash", scripts / "bash", "tensorcraft", *line],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_commands_flags_and_values_are_completed(scripts):
    assert set(words(scripts, "")) == set(COMMANDS)
    assert words(scripts, "stat") == ["status"]
    assert words(scripts, "status", "--js") == ["--json"]
    assert words(scripts, "run", "--Train-epoc") == ["--Train-epochs"]
    assert words(scripts, "run", "--Train-device", "") == ["auto", "cpu", "gpu", "tpu"]
    assert set(words(scripts, "doctor", "--Train-model", "")) == {"auto", *MODELS.builtin}
    assert set(words(scripts, "run", "--experiment", "")) == set(experiments())
    assert words(scripts, "completion", "f") == ["fish"]


def test_every_setting_is_completed_where_it_is_taken(scripts):
    flags = {
        f"--{section.section}-{setting.name}".replace("_", "-")
        for section in SECTIONS
        for setting in settings_of(section)
    }
    for command in ("run", "status", "predict", "export", "nightly"):
        assert flags <= set(words(scripts, command, "--")), command
    for command in ("init", "experiments"):
        assert not flags & set(words(scripts, command, "--")), command


def test_a_completion_takes_less_time_than_one_notices(scripts):
    def seconds() -> float:
        """CPU time, which depends less on the tests beside this one."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        words(scripts, "run", "--Train-opt")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert 0 < min(seconds() for _ in range(3)) < MOST_SECONDS


def test_zsh_and_fish_read_their_scripts(scripts):
    assert (scripts / "zsh").read_text().startswith("#compdef tensorcraft\n")
    assert "complete -c tensorcraft " in (scripts / "fish").read_text()
    for shell in filter(shutil.which, ("zsh", "fish")):
        subprocess.run([shell, "-n", scripts / shell], check=True)
