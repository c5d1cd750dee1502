"""A pytest plugin that prints the CPU seconds of the most expensive tests and files, child processes included.

It adds up the user and system time of ``RUSAGE_SELF`` and ``RUSAGE_CHILDREN`` of the process that runs the test.
A child process counts when its parent has waited for it. A shared fixture counts for the first test that requests it.
"""

import resource
from collections import Counter
from collections.abc import Generator

import pytest

_ROWS = 20
_PROPERTY = "cpu_seconds"
_LAST_READING = pytest.StashKey[float]()


def cpu_seconds() -> float:
    """Return the user and system seconds of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start counting before the first fixture of a test."""
    item.config.stash[_LAST_READING] = cpu_seconds()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the CPU seconds of a phase (setup, call, teardown) to its report. pytest-xdist sends it to its parent."""
    report = yield
    reading = cpu_seconds()
    report.user_properties.append((_PROPERTY, reading - item.config.stash.get(_LAST_READING, reading)))
    item.config.stash[_LAST_READING] = reading
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the most expensive tests and files, and the total with collection and imports."""
    tests, files = Counter(), Counter()
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        for name, seconds in getattr(report, "user_properties", ()):
            if name == _PROPERTY:
                tests[report.nodeid] += seconds
                files[report.nodeid.partition("::")[0]] += seconds
    if not tests:
        return
    terminalreporter.section("CPU seconds, child processes included")
    for kind, seconds_by_name in (("tests", tests), ("files", files)):
        terminalreporter.write_line(f"Most expensive {kind}:")
        for name, seconds in seconds_by_name.most_common(_ROWS):
            terminalreporter.write_line(f"{seconds:8.2f}  {name}")
    terminalreporter.write_line(f"{cpu_seconds():8.2f}  total, with collection and imports")
