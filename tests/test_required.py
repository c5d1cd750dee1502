import os
import subprocess
import sys
from pathlib import Path

import pytest

IN_TESTS = """
import pytest

def test_that_passes():
    pass

def test_that_skips():
    pytest.skip("no such tool")

@pytest.fixture
def data():
    pytest.skip("no such data")

def test_with_a_fixture_that_skips(data):
    pass

def test_that_imports():
    pytest.importorskip("no_such_package")

@pytest.mark.skipif(True, reason="there is a GPU")
def test_without_a_gpu():
    pass

@pytest.mark.xfail
def test_that_fails():
    assert False
"""
WHOLE_FILE = 'import pytest\npytest.skip("no browser", allow_module_level=True)\n'


@pytest.mark.parametrize(
    ("content", "ci", "code", "outcome"),
    [
        (IN_TESTS, "", 0, "1 passed, 4 skipped, 1 xfailed"),
        (IN_TESTS, "true", 1, "2 failed, 1 passed, 1 skipped, 1 xfailed, 1 error"),
        (WHOLE_FILE, "", 5, "1 skipped"),
        (WHOLE_FILE, "true", 2, "1 error"),
    ],
    ids=["tests", "tests in CI", "file", "file in CI"],
)
def test_a_test_whose_needs_are_missing_is_skipped_and_fails_in_ci(tmp_path, content, ci, code, outcome):
    (tmp_path / "test_one.py").write_text(content)
    command = [sys.executable, "-m", "pytest", "-p", "required", "-p", "no:cacheprovider", "-q", str(tmp_path)]
    # Without the plugins that are installed: importing them takes most of the time.
    more = {"CI": ci, "PYTHONPATH": str(Path(__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=os.environ | more)
    assert done.returncode == code, done.stdout
    assert outcome in done.stdout
    assert ("With CI=true whatever a test needs has to be there" in done.stdout) is (ci == "true")
