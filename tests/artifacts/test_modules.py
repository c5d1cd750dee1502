"""What was read of a module is remembered by its content, and nothing depends on that but time."""

import ast
import atexit
import importlib.util
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from luigi_process import PROJECT

from pipeline.artifacts import code_digest
from pipeline.artifacts.code_digest import read_module
from pipeline.artifacts.fingerprint import code_digests

STAGE = "pipeline.records.features"
# Prints how many modules were parsed, and the digests of all that a module reaches.
DIGESTS = """
import ast, json, sys
from pipeline.artifacts import code_digest
from pipeline.artifacts.fingerprint import code_digests
parsed, parse = [], ast.parse
ast.parse = lambda *given, **named: parsed.append(given) or parse(*given, **named)
digests = code_digests(sys.argv[1])
print(json.dumps([len(parsed), digests]))
"""


def test_one_process_remembers_what_another_has_read(tmp_path):
    own = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-c", DIGESTS, STAGE]
    runs = [subprocess.run(command, env=own, cwd=PROJECT, capture_output=True, check=True) for _ in range(2)]
    (parsed, digests), again = (json.loads(done.stdout) for done in runs)
    assert parsed == len(digests)
    assert again == [0, digests]


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Digest the code as a new process would, whose bytecode goes to a folder of its own."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    # Python makes it when it compiles the module.
    Path(importlib.util.cache_from_source(code_digest.__file__)).parent.mkdir(parents=True)

    def forget() -> None:
        code_digest._results.cache_clear()
        code_digest._version.cache_clear()
        read_module.cache_clear()

    def start() -> tuple[int, dict]:
        forget()
        parsed, parse, at_exit = [], ast.parse, []
        with monkeypatch.context() as patch:
            patch.setattr(ast, "parse", lambda *given, **named: parsed.append(given) or parse(*given, **named))
            patch.setattr(atexit, "register", lambda keep, *results: at_exit.append(partial(keep, *results)))
            digests = code_digests(STAGE)
        at_exit.pop()()
        return len(parsed), digests

    yield start
    forget()


def memory_below(folder: Path) -> Path:
    (found,) = folder.rglob("modules.json*")
    return found


def test_a_cached_module_is_not_parsed_again(start):
    parsed, digests = start()
    assert parsed == len(digests)
    assert start() == (0, digests)


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"version": 1}', b"{" * 100_000, b"\xff\xfe"])
def test_a_damaged_cache_is_rebuilt(start, tmp_path, damage):
    before = start()
    memory_below(tmp_path).write_bytes(damage)
    assert start() == before
    assert start() == (0, before[1])


def test_entries_of_another_shape_are_read_again(start, tmp_path):
    before = start()
    digests = json.loads(memory_below(tmp_path).read_text())
    for shape in (1, [{}]):
        memory_below(tmp_path).write_text(json.dumps(dict.fromkeys(digests, shape)))
        assert start() == before


def test_a_cache_of_another_version_is_ignored(start, tmp_path, monkeypatch):
    before = start()
    wrong = {digest: [{"<module>": "wrong"}, []] for digest in json.loads(memory_below(tmp_path).read_text())}
    memory_below(tmp_path).write_text(json.dumps(wrong))
    (tmp_path / "code_digest.py").write_bytes(Path(code_digest.__file__).read_bytes() + b"\n")
    monkeypatch.setattr(code_digest, "__file__", str(tmp_path / "code_digest.py"))
    assert start() == before


def test_no_cache_is_written_if_python_writes_no_bytecode(start, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert start()[0] > 0
    assert not list(tmp_path.rglob("modules.json*"))
