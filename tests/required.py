"""What tests need: where it is missing a test is skipped, but with CI=true it fails.

A plugin of pytest that ``conftest.py`` imports. It covers every ``pytest.skip`` and ``pytest.importorskip``, of a test,
a fixture or a whole file. A mark (``pytest.mark.skipif``) is for a test that does not apply here, because this machine
has a GPU, say: it stays a skip.
"""

import os
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    is_marked = any(item.iter_markers("skip")) or any(item.iter_markers("skipif"))
    return report if is_marked else _failed_in_ci(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _failed_in_ci((yield))


def _failed_in_ci(report):
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        path, line, reason = report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{path}:{line}: {reason}\nWith CI=true whatever a test needs has to be there."
    return report
