"""The report of CPU seconds counts child processes, adds up the tests of a file and sorts by cost."""

import re

TESTS = """
import subprocess, sys, time

def burn(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass

def test_in_this_process():
    burn(0.3)

def test_in_a_child():
    code = "import time\\nwhile time.process_time() < 0.9: pass"
    subprocess.run([sys.executable, "-S", "-c", code], check=True)

def test_cheap():
    assert True
"""


def test_the_most_expensive_tests_and_files_come_first_with_their_children(pytester):
    pytester.makepyfile(test_one=TESTS)
    ran = pytester.runpytest_inprocess("-p", "resource_report", "-p", "no:randomly", "-p", "no:xdist")
    ran.assert_outcomes(passed=3)
    rows = re.findall(r"^ *(\d+\.\d\d)  (\S.*)$", ran.stdout.str(), re.MULTILINE)
    names = [name.rpartition("::")[2] for _, name in rows]
    assert names == [
        "test_in_a_child",
        "test_in_this_process",
        "test_cheap",
        "test_one.py",
        "total, with collection and imports",
    ]
    child, process, cheap, file, total = (float(seconds) for seconds, _ in rows)
    assert child >= 0.9
    assert process >= 0.3
    # Each is rounded to a hundredth.
    assert file >= child + process - 0.02
    assert total >= file
    assert cheap < process
