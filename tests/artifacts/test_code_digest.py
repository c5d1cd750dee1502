import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.artifacts import code_digest
from pipeline.artifacts.code_digest import definition_digests

PROJECT = Path(__file__).resolve().parents[2]

# What the trees of Python 3.11, 3.12 and 3.13 differ in, and what a module of ours is likely to hold. (A raw text.)
SAMPLE = r'''
"""Doc."""
import a.b as c
from d import e, f as g

LIMIT, name = 3, "é\n\x00"
bits = (1_000, 0x10, 1e-3, 2j, b"\xff", ..., None, True, -1, u"u", "two " "parts")


@cache
def words(x, /, y: int = 1, *rest, key, other=None, **more) -> str:
    """Doc."""
    return f"{x}" "tail" f"{y!r:>{x}}" f"{x = !s:{x}.{y}}" f"{{braces}}{x:}" f"{x:%Y-%m}" f"" rf"\d{x}"


async def later(source):
    async with source as one, other:
        return [item async for item in one if item] or {**one, "k": (yield_ := 1)}


class Shape(Base[0:1, ...], metaclass=Meta):
    side: int = 0
    name: str

    def area(self):
        global total
        total += self.side**2 if self.side else not 0
        return lambda *, k=1: k


def flow(value):
    match value:
        case {"a": 1, **rest} if rest:
            return
        case [1, *_] | (Point(x=0) as p) | None:
            pass
    try:
        del value[1:2]
    except* (ValueError, OSError) as error:
        raise RuntimeError(f"{error}") from None
    else:
        assert value, "words"
    while True:
        for x, *y in value:
            continue
        else:
            break
'''

PINNED = {
    "<module>": "7ad08de89f852d31",
    "words": "2b2c7349c257927d",
    "later": "8519ac9f1090559d",
    "Shape": "f9a2fe2e932f6fcf",
    "flow": "3b222338a24d73df",
}


def pythons() -> list[str]:
    """One interpreter of each supported version that starts here: this one, those on the PATH, pyenv's, uv's."""
    minors = range(11, 14)
    found = [sys.executable]
    found += filter(None, (shutil.which(f"python3.{minor}") for minor in minors))
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    found += [str(path) for minor in minors for path in sorted(pyenv.glob(f"versions/3.{minor}.*/bin/python"))]
    if uv := shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"):
        options = ["--no-project", "--no-python-downloads"]
        found += [run(uv, "python", "find", *options, f"3.{minor}").stdout.strip() for minor in minors]
    by_version = {}
    for path in filter(None, found):
        started = run(path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
        if started.returncode == 0:
            by_version.setdefault(started.stdout.strip(), path)
    return [by_version[f"3.{minor}"] for minor in minors if f"3.{minor}" in by_version]


def run(*command: str, **how) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, **how)


# -I: without this environment's packages. Sources come as JSON on standard input: label → source.
STANDALONE = """
import ast, json, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from pipeline.artifacts import code_digest
sources = json.load(sys.stdin)
print(json.dumps({name: code_digest.definition_digests(ast.parse(source)) for name, source in sources.items()}))
"""


def test_digests_of_the_sample_are_those_pinned():
    assert definition_digests(ast.parse(SAMPLE)) == PINNED


@pytest.mark.parametrize(
    "every", [pytest.param(12, id="each-twelfth-module"), pytest.param(1, id="every-module", marks=pytest.mark.slow)]
)
def test_every_python_found_here_agrees_on_the_sample_and_on_our_own_code(every):
    paths = sorted(PROJECT.glob("pipeline/**/*.py"))[::every]
    ours = {str(path.relative_to(PROJECT)): path.read_text("utf-8") for path in paths}
    expected = {name: definition_digests(ast.parse(source)) for name, source in ours.items()}
    sources = json.dumps({"": SAMPLE, **ours})
    for python in pythons():
        done = run(python, "-I", "-W", "ignore", "-c", STANDALONE, str(PROJECT), input=sources)
        assert done.returncode == 0, f"{python}: {done.stderr}"
        digests = json.loads(done.stdout)
        assert digests.pop("") == PINNED, python
        assert digests == expected, python


def digests(text: str) -> dict[str, str]:
    """Those of a module with a generator whose body is ``text``."""
    body = "".join(f"    {line}\n" for line in text.splitlines())
    return definition_digests(ast.parse(f"async def f(x):\n{body}"))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ('"""Doc."""\nreturn x', "return x"),
        ('"""Doc."""', "pass"),
        ("return x", "# Because.\nreturn(  x  )"),
        ('_logger.info("one %s", x)\nreturn x', '_logger.warning("another")\nreturn x'),
        ('_logger.info(f"one {x}")\nreturn x', "return x"),
        ('_logger.info("one %s", g(x))', '_logger.info("another %s", g(x))'),
        ('_logger.info(f"one {g(x)}")', '_logger.info(f"another {g(x)}")'),
        ("if x:\n    return 1\nelse:\n    logging.info(x)", "if x:\n    return 1"),
        ('progress.report("records", 1, x)', "pass"),
        ('raise ValueError(f"expected {x}")', 'raise ValueError("got " "another")'),
        ('raise Ours(path, message(x, f"expected {x}")) from None', 'raise Ours(path, message(x, "said")) from None'),
        ('refuse("Train", "seed", f"at most {x}", x)', 'refuse("Train", "seed", "no more", x)'),
        ('self.refuse(f" It has {x}.")', 'self.refuse(" It has others.")'),
        ('return f"a" f"b{x}"', 'return "ab" f"{x}"'),
        ('return f"{x:}"', 'return f"{x}"'),
        ('@message\ndef said(y) -> str:\n    return f"one {y}"\nreturn x', "return x"),
    ],
)
def test_a_reworded_message_does_not_change_a_digest(left, right):
    assert digests(left) == digests(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("return x + 1", "return x + 2"),
        ("return 1", "return True"),
        ("return 1", "return 1.0"),
        ("return 'a'", "return b'a'"),
        ("return 'a'", "return f'a{x}'"),
        ("return f'{x}'", "return f'{x!r}'"),
        ("return f'{x}'", "return f'{x:.1f}'"),
        ("return", "return None"),
        ("if x:\n    g()", "if x:\n    pass\nelse:\n    g()"),
        ("return {**x}", "return {None: x}"),
        # Text that is no message: written, returned, or assembled for later.
        ('file.write("one")', 'file.write("another")'),
        ('words = "one"', 'words = "another"'),
        ('return _logger.info("one")', "return _logger.warning(1)"),
        ('_logger.setLevel("INFO")', '_logger.setLevel("DEBUG")'),
        # An argument with an effect.
        ("_logger.info(y := x)", "_logger.info(y := x + 1)"),
        ("_logger.info((yield x))", "_logger.info((yield x + 1))"),
        ('_logger.info("%s", unfreeze(x, 3))', '_logger.info("%s", unfreeze(x, 30))'),
        ('_logger.info("%s", mode("fast"))', '_logger.info("%s", mode("slow"))'),
        ('_logger.info("%s", unfreeze(x))', "pass"),
        ('logging.info(f"now {unfreeze(x, 3)}")', 'logging.info(f"now {unfreeze(x, 30)}")'),
        ('_logger.info("%s", x, extra={"n": unfreeze(x, 3)})', '_logger.info("%s", x, extra={"n": unfreeze(x, 30)})'),
        ('_logger.info("%d", sum(g(y) for y in x))', '_logger.info("%d", sum(g(y) for y in x[1:]))'),
        ('raise ValueError(f"now {unfreeze(x, 3)}")', 'raise ValueError(f"now {unfreeze(x, 30)}")'),
        # What is caught by its class, and the values that an error carries.
        ('raise ValueError("one")', 'raise TypeError("one")'),
        ("raise Ours(x)", "raise Ours(x + 1)"),
        ('raise Ours("one")', 'raise Ours("one", 2)'),
        # Matched by its text in hardware/runtime.py.
        ('raise ConnectionError(f"{x} is unreachable")', 'raise ConnectionError(f"{x} is away")'),
        ('raise RuntimeError("no driver")', 'raise RuntimeError("sees none")'),
        ('if x > 3:\n    _logger.info("one")\n    return 1', 'if x > 4:\n    _logger.info("one")\n    return 1'),
    ],
)
def test_a_change_of_behavior_changes_the_digest(left, right):
    assert digests(left) != digests(right)


ACTING = ast.Global | ast.Nonlocal | ast.Yield | ast.YieldFrom | ast.Await | ast.Delete | ast.With | ast.Raise


def test_functions_marked_as_messages_only_build_text():
    for path in sorted((PROJECT / "pipeline").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in filter(code_digest.is_message, ast.walk(tree)):
            where = f"{path.name}: {function.name}"
            assert ast.unparse(function.returns) in ("str", "tuple[str, str]"), where
            for node in ast.walk(function):
                assert not isinstance(node, ACTING), f"{where}: {type(node).__name__}"
                stored = isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store)
                assert not stored, f"{where}: changes {ast.unparse(node)}"
                called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else "str"
                assert called not in {"open", "print", "exec", "eval", "setattr", "delattr"}, f"{where}: {called}"
