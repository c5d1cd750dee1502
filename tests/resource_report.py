"""CPU seconds of each test and file, child processes included, at the end of a run.

A pytest plugin that ``conftest.py`` imports. It adds the user and system time of ``RUSAGE_SELF`` and ``RUSAGE_CHILDREN``
of the process that runs a test. A session fixture counts towards the first test that needs it. A child process counts
when its parent has waited for it. The total is that of pytest's own process and so includes collection and imports.
"""

import resource
from collections import Counter
from collections.abc import Generator

import pytest

_ROWS = 20
_PROPERTY = "cpu_seconds"
_LAST = pytest.StashKey[float]()
_BY_TEST = pytest.StashKey[Counter]()


def cpu_seconds() -> float:
    """User and system seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def pytest_runtest_logstart() -> None:
    """Do nothing: pytest-xdist calls this in the process that prints, not in the one that runs the test."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the CPU seconds since the last report of this process to a phase's report."""
    report = yield
    now = cpu_seconds()
    report.user_properties.append((_PROPERTY, now - item.config.stash.get(_LAST, now)))
    item.config.stash[_LAST] = now
    return report


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[_LAST] = cpu_seconds()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the most expensive tests and files, and the total."""
    tests, files = Counter(), Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, seconds in getattr(report, "user_properties", ()):
                if name == _PROPERTY:
                    tests[report.nodeid] += seconds
                    files[report.nodeid.partition("::")[0]] += seconds
    if not tests:
        return
    terminalreporter.section("CPU seconds, child processes included")
    for title, counter in (("tests", tests), ("files", files)):
        terminalreporter.write_line(f"most expensive {title}:")
        for name, seconds in counter.most_common(_ROWS):
            terminalreporter.write_line(f"{seconds:8.2f}  {name}")
    terminalreporter.write_line(f"{cpu_seconds():8.2f}  total, with collection and imports")
