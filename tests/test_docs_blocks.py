"""Commands and code in the documentation: each block is run here, or a comment before it gives the reason.

``<!-- not run: REASON -->`` marks a block that no test runs, and ``<!-- needs: torch -->`` one that runs where that
package is installed. The fast tests parse every command, flag and setting. The slow tests run each page from top to
bottom in a copy of the project with a small cifar10, photographs in ``flowers/`` and a text in ``book.txt``. The blocks
of a page are one shell script, so that a variable or file of one is there in the next. A ``bash`` block has commands, a
``console`` block commands after ``$`` and their output. ``<!-- saved: FILE -->`` saves a block instead of running it.
"""

import configparser
import functools
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import in_process
import numpy as np
import pytest
from luigi_process import PROJECT
from markdown_it import MarkdownIt
from PIL import Image

from pipeline.errors import PipelineError, SettingsError
from pipeline.settings import SECTIONS
from pipeline.settings.schema import Setting, settings_of
from tasks.config_files import experiments
from tasks.settings import check_command_line

OMITTED = {PROJECT / "docs" / "LOG.md", PROJECT / "docs" / "changelog.md"}
_DOCUMENTS = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted((PROJECT / "docs").rglob("*.md"))]
PAGES = [path.relative_to(PROJECT).as_posix() for path in _DOCUMENTS if path not in OMITTED]
SHELL, SESSION, PYTHON, SETTINGS = {"bash", "sh", "shell"}, {"console"}, {"python", "py"}, {"ini"}
# Programs of a block that is run. What else a reader needs (docker, kubectl, pip) is marked.
PROGRAMS = {"tensorcraft", "luigi", "python", ".venv/bin/python", "make", "cat", "cd", "cp", "curl", "echo", "export"}
PROGRAMS |= {"grep", "head", "kill", "ls", "mkdir", "mv", "rm", "sed", "tail"}
# Sections that Luigi itself reads.
OF_LUIGI = {"core", "email", "resources", "scheduler", "smtp", "worker"}
_OUR_COMMAND = re.compile(r"-m tasks\b([^;|&\n]*)")
_USER_CODE = re.compile(r"[\w.]+:\w+")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page. ``reason`` says why it is not run."""

    place: str
    language: str
    text: str
    reason: str = ""
    needs: str = ""
    saved: str = ""

    def script(self) -> str:
        """The block as shell commands. Empty if it is not run."""
        text, is_session = self.text, self.language in SESSION
        if is_session:
            # A command goes on in the next line after a backslash.
            text = "\n".join(re.findall(r"^\$ ((?:.*\\\n)*.*)$", text, re.MULTILINE)) + "\n"
        if self.saved or self.language in PYTHON:
            program = f"cat > {self.saved}" if self.saved else "python -"
            return f"{program} <<'END-OF-BLOCK'\n{text}END-OF-BLOCK\n"
        return text if is_session or self.language in SHELL else ""


@functools.cache
def tokens_of(page: str) -> list:
    return MarkdownIt("commonmark").enable("table").parse((PROJECT / page).read_text(encoding="utf-8"))


def blocks(page: str) -> Iterator[Block]:
    lines = (PROJECT / page).read_text(encoding="utf-8").splitlines()
    for token in tokens_of(page):
        if token.type in ("fence", "code_block"):
            first, given = token.map[0], {}
            while first and (marker := re.fullmatch(r"\s*<!-- (not run|needs|saved): (\S.*) -->", lines[first - 1])):
                given[marker[1]], first = marker[2], first - 1
            language = (token.info.split() or [""])[0] if token.type == "fence" else "indented"
            notes = {
                "reason": given.get("not run", ""),
                "needs": given.get("needs", ""),
                "saved": given.get("saved", ""),
            }
            yield Block(f"{page}:{token.map[0] + 1}", language, token.content, **notes)


def simple_commands(script: str) -> Iterator[list[str]]:
    """The commands of a script as words, without variables before them and redirections."""
    for line in re.sub(r"\\\n", " ", script).splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>()")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set(";&|()"):
                while words and re.match(r"\w+=", words[0]):
                    words.pop(0)
                if words:
                    yield words
                words = []
            elif set(word) <= set("<>"):
                words.append(">")
            elif words and words[-1] == ">":
                words.pop()
            else:
                words.append(word)


class _Parsed(BaseException):
    """A command line was parsed, and its command would begin to work."""


def parse_command(argv: Sequence[str], folder: Path) -> None:
    """Parse a command line of ours as its command does. SettingsError: it is refused."""
    from tasks.__main__ import dispatch

    if argv == ["init"]:
        # It refuses to work in a clone.
        return

    def check(line: Sequence[str], others: Sequence[str] = ()) -> None:
        try:
            check_command_line(line, others)
        except PipelineError as error:
            raise _Parsed(error) from error
        raise _Parsed

    with ExitStack() as stack:
        stack.enter_context(
            in_process.started("tensorcraft", *argv, cwd=folder, env={**os.environ, "HOME": str(folder)})
        )
        for module in ("tasks.commands", "tasks.commands.run", "tasks.scheduled"):
            stack.enter_context(mock.patch(f"{module}.in_force", check))
        # train-local starts processes.
        start = mock.patch("tasks.commands.run.child_command", lambda *words: check(["--module", "tasks", *words]))
        stack.enter_context(start)
        try:
            dispatch(list(argv))
        except _Parsed as parsed:
            if parsed.args:
                raise parsed.args[0] from None
        except SystemExit as ended:
            if ended.code:
                raise SettingsError(f"exit code {ended.code}") from None


@functools.cache
def makefile() -> str:
    return (PROJECT / "Makefile").read_text(encoding="utf-8")


def of_make(words: Sequence[str]) -> list[list[str]]:
    """The commands of ours that make would run. SettingsError: it has no such target or variable."""
    variables = {word.partition("=")[0] for word in words[1:] if re.match(r"\w+=", word)}
    if unknown := variables - set(re.findall(r"\$\((?:or \$\(|firstword \$\()?(\w+)\)", makefile())) - {"ARGS"}:
        raise SettingsError(f"the Makefile has no variable {', '.join(sorted(unknown))}")
    command = ["make", "--dry-run", "--no-print-directory", "PYTHON=python3", *words[1:]]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SettingsError(done.stderr.strip())
    return [shlex.split(found) for found in _OUR_COMMAND.findall(re.sub(r"\\\n", " ", done.stdout))]


def ours(words: Sequence[str]) -> list[list[str]] | None:
    """The command lines after ``tensorcraft`` that a command comes to; None if it is another program's."""
    if words[0] == "make":
        return of_make(words)
    if words[0] == "tensorcraft":
        return [[*words[1:]]]
    if words[0] == "luigi":
        return [[word for word in words[1:] if word not in ("--module", "tasks")]]
    if words[0].endswith("python") and list(words[1:3]) == ["-m", "tasks"]:
        return [[*words[3:]]]
    return None


def problems_of(block: Block, page: str, folder: Path) -> Iterator[str]:
    known_experiments = {*experiments(), *re.findall(r"experiments/(\w+)\.ini", page)}
    if block.language == "indented":
        yield "an indented block: use a fence with its language"
    if block.language in SETTINGS:
        yield from problems_of_settings(block.text)
    if block.language in PYTHON:
        try:
            compile(block.text, block.place, "exec")
        except SyntaxError as error:
            yield f"no Python: {error}"
    if block.language not in SHELL | SESSION:
        return
    for words in simple_commands(block.script()):
        line = " ".join(words)
        try:
            found = ours(words)
            for argv in found or ():
                # Without code of the reader's.
                pairs = itertools.pairwise([*argv, ""])
                argv = [word for pair in pairs if not any(map(_USER_CODE.fullmatch, pair)) for word in pair[:1]]
                parse_command(argv, folder)
                yield from (f"{line}: {problem}" for problem in problems_of_flags(argv))
        except (PipelineError, ValueError) as error:
            yield f"{line}: {error}"
        else:
            is_run = words[0] in PROGRAMS and (words[0] != "make" or found or words[1:] == ["setup"])
            if not block.reason and not is_run:
                yield f"{line}: no test runs it. Give the reason before the block: <!-- not run: REASON -->"
        named = [word.partition("=")[2] for word in words if word.startswith(("EXPERIMENT=", "--experiment="))]
        named += [name for flag, name in itertools.pairwise(words) if flag == "--experiment"]
        unknown = {*" ".join(named).split()} - known_experiments
        yield from (f"{line}: no experiment is called {name}" for name in sorted(unknown))


@functools.cache
def settings() -> dict[str, dict[str, Setting]]:
    return {section.section: {one.name: one for one in settings_of(section)} for section in SECTIONS}


def problems_of_settings(text: str) -> Iterator[str]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        yield f"no settings: {error}"
    for section in set(parser.sections()) - OF_LUIGI:
        for name, value in parser[section].items():
            if name not in settings().get(section, {}):
                yield f"no setting [{section}] {name}"
            elif "$" not in value and not _USER_CODE.fullmatch(value):
                yield from problems_of_value(settings()[section][name], value)


def problems_of_value(setting: Setting, value: str) -> Iterator[str]:
    try:
        setting.checked(setting.parse(value))
    except SettingsError as error:
        yield str(error)


def problems_of_flags(argv: Sequence[str]) -> Iterator[str]:
    """Values of settings that are no valid ones; a command line is otherwise checked for their types alone."""
    for flag, value in itertools.pairwise(argv):
        if (parts := re.fullmatch(r"--(?:([A-Z]\w*)-)?([\w-]+)", flag)) and not value.startswith("--"):
            setting = settings().get(parts[1] or "Report", {}).get(parts[2].replace("-", "_"))
            yield from problems_of_value(setting, value) if setting else ()


def problems_in_text(page: str) -> Iterator[str]:
    """Commands and settings that the text names between backticks, and that do not exist."""
    from tasks.__main__ import COMMANDS

    targets = set(re.findall(r"^([a-z][\w-]*):", makefile(), re.MULTILINE))
    for token in tokens_of(page):
        for code in (child.content for child in token.children or () if child.type == "code_inline"):
            named = [(section, name.replace("-", "_")) for section, name in re.findall(r"--([A-Z]\w*)-([\w-]+)", code)]
            named += re.findall(r"^\[([A-Z]\w*)\] (\w+)", code)
            for section, name in named:
                if name not in settings().get(section, {}):
                    yield f"{page}:{token.map[0] + 1}: `{code}`: no setting [{section}] {name}"
            if (found := re.match(r"make ([a-z][\w-]*)", code)) and found[1] not in targets:
                yield f"{page}:{token.map[0] + 1}: `{code}`: no such target"
            if (found := re.match(r"tensorcraft ([a-z][\w-]*)", code)) and found[1] not in COMMANDS:
                yield f"{page}:{token.map[0] + 1}: `{code}`: no such command"


FILES = {
    "flowers/daisy/1.jpg": "",
    "reviews/negative/0.txt": "Dull.",
    "reviews/negative/1.txt": "Long.",
    "reviews/positive/0.txt": "Fine.",
    "tags.csv": "path,tags\n",
    "positions.csv": "path,x,y\n",
}


@pytest.mark.parametrize("page", PAGES)
def test_every_command_flag_and_setting_exists(page, tmp_path):
    text = (PROJECT / page).read_text(encoding="utf-8")
    # A run of a path looks at the names of the files and at their first bytes.
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    found = [f"{block.place}: {problem}" for block in blocks(page) for problem in problems_of(block, text, tmp_path)]
    found += problems_in_text(page)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("make pipelin", "No rule to make target"),
        ("make pipeline AGRS=--Train-epochs", "no variable AGRS"),
        ('make pipeline ARGS="--Train-epoch 1"', "unrecognized argument --Train-epoch"),
        ('make nightly ARGS="--Train-epochs 0"', "epochs"),
        ("tensorcraft statsu", "got 'statsu'"),
        ("tensorcraft train-local --processes 2 --Train-epocs 1", "--Train-epocs"),
        ("luigi --module tasks Report --Train-device abacus", "abacus"),
        ("tensorcraft predict", "required: files"),
        ("docker ps", "not run: REASON"),
        ("make pipeline EXPERIMENT=unheard_of ARGS=--Train-epochs=1", "unheard_of"),
        ("tensorcraft status --experiment unheard_of", "unheard_of"),
    ],
)
def test_a_wrong_command_is_noticed(line, expected, tmp_path):
    (found,) = problems_of(Block("page:1", "bash", f"FOO=1 {line}\n"), "", tmp_path)
    assert expected in found


def test_a_wrong_setting_is_noticed():
    assert [*problems_of_settings("[Train]\nepochs = 2\n[Storage]\nremote = ${BUCKET}\n")] == []
    assert [*problems_of_settings("[Train]\nepoch = 2\n")] == ["no setting [Train] epoch"]
    assert len([*problems_of_settings("[Train]\nepochs = many\n")]) == 1


@pytest.fixture
def clone(tmp_path, tiny_tfds) -> Path:
    """A copy of the project whose environment is that of the tests, with small inputs beside it."""
    folder, home = tmp_path / "tensorcraft", tmp_path / "home"
    for name in ("pipeline", "tasks", "experiments", "deploy"):
        shutil.copytree(PROJECT / name, folder / name)
    for path in (path for path in PROJECT.iterdir() if path.is_file()):
        shutil.copy(path, folder)
    rng = np.random.default_rng(0)
    for number in range(240):
        path = folder / "flowers" / ("daisy", "roses", "tulips")[number % 3] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 80, (110, 140, 3)) + 80 * (number % 3)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    (folder / "book.txt").write_text("It was the best of times, it was the worst of times.\n" * 400)
    home.mkdir()
    (home / "flowers").symlink_to(folder / "flowers")
    (home / "new-photos").symlink_to(folder / "flowers" / "daisy")
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    luigi = Path(sys.executable).with_name("luigi")
    for name, line in {"python": sys.executable, "tensorcraft": f"{sys.executable} -m tasks", "luigi": luigi}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        (programs / name).chmod(0o755)
    # make then has nothing to install.
    for extra in ("cpu", "dev", "optional"):
        (programs / f".installed-{extra}").touch()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs_from_top_to_bottom(page, request, tmp_path):
    script = ""
    for block in blocks(page):
        if not block.reason and (not block.needs or find_spec(block.needs)) and (commands := block.script()):
            script += f"echo '--- {block.place}' >&2\n{commands}"
    if not script:
        return
    clone = request.getfixturevalue("clone")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("TENSORCRAFT_", "LUIGI_"))},
        "HOME": str(tmp_path / "home"),
        "HTTP_PROXY": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "PATH": f"{clone / '.venv' / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(clone),
        "TFDS_DATA_DIR": str(request.getfixturevalue("tiny_tfds")),
    }
    # A server that a page starts must not outlive a failure.
    script = f"trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n{script}"
    command = ["bash", "-e", "-o", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
