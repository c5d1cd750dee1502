"""What was read of a module is remembered by its content, and nothing depends on that but time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from luigi_process import PROJECT

# Prints how many modules were parsed, and the digests of all that a stage reaches.
DIGESTS = """
import ast, json, sys
from pipeline.artefacts import modules
from pipeline.artefacts.fingerprint import code_digests
parsed, parse = [], ast.parse
ast.parse = lambda *given, **named: parsed.append(given) or parse(*given, **named)
digests = code_digests("pipeline.shards.job")
print(json.dumps([len(parsed), digests]))
"""


@pytest.fixture
def start(tmp_path):
    """Digest the code in a process of its own, whose bytecode goes to a folder of its own."""

    def start(**env: str) -> tuple[int, dict]:
        own = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "", **env}
        command = [sys.executable, "-c", DIGESTS]
        return json.loads(subprocess.run(command, env=own, cwd=PROJECT, capture_output=True, check=True).stdout)

    return start


def memory_below(folder: Path) -> Path:
    (found,) = folder.rglob("modules.json*")
    return found


def test_what_is_read_once_is_not_parsed_again_and_says_the_same(start):
    parsed, digests = start()
    assert parsed == len(digests)
    assert start() == [0, digests]


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"version": 1}', b"{" * 100_000, b"\xff\xfe"])
def test_a_damaged_memory_is_made_anew(start, tmp_path, damage):
    before = start()
    memory_below(tmp_path).write_bytes(damage)
    assert start() == before
    assert start() == [0, before[1]]


def test_what_another_version_of_the_code_remembers_does_not_count(start, tmp_path):
    before = start()
    kept = json.loads(memory_below(tmp_path).read_text())
    wrong = {digest: [{"<module>": "wrong"}, []] for digest in kept["modules"]}
    memory_below(tmp_path).write_text(json.dumps({"version": "another", "modules": wrong}))
    assert start() == before


def test_nothing_is_written_where_python_writes_no_bytecode(start, tmp_path):
    assert start(PYTHONDONTWRITEBYTECODE="1")[0] > 0
    assert not list(tmp_path.rglob("modules.json*"))
