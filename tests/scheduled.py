"""Scheduled runs as users start them: Nightly of a date, under its supervisor, and what monitoring reads of it."""

import subprocess
import sys
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import pytest
import time_machine
from luigi_process import FAST, PROJECT, Luigi
from prometheus_client.parser import text_string_to_metric_families

from tasks.scheduled import Outcome, read_outcome

TODAY = datetime.now(UTC).date()
DAY = "2026-11-01"


@pytest.fixture(scope="module")
def noon():
    """Let it be noon of ``TODAY``, so that the date does not change while tests of this process need it."""
    with time_machine.travel(datetime.combine(TODAY, time(12), tzinfo=UTC)):
        yield


def days_ago(days: int) -> str:
    return (TODAY - timedelta(days=days)).isoformat()


def nightly(luigi: Luigi, *args: str, task: str = "Nightly") -> subprocess.CompletedProcess:
    """Run a task of dates, without a supervisor."""
    return luigi.here("tasks", task, *args, *FAST)


class Unattended(Luigi):
    """As Luigi, through the command nightly, with a webhook."""

    def __init__(self, luigi: Luigi, webhook) -> None:
        self.root, self.data_dir, self.config, self.webhook = luigi.root, luigi.data_dir, luigi.config, webhook
        self.metrics = self.root.parent / "tensorcraft.prom"
        self.write_config()

    def write_config(self, more: str = "") -> None:
        webhook, metrics = "${A_WEBHOOK}", f"[Metrics]\nprometheus_file = {self.metrics}"
        super().write_config(f"[Notify]\nwebhook_url = {webhook}\n{metrics}\n{more}")

    def environment(self, more: dict[str, str]) -> dict[str, str]:
        here = {"A_WEBHOOK": self.webhook.url, "NO_PROXY": "127.0.0.1"}
        return super().environment({**here, **more})

    def nightly(self, *args: str, day: str = DAY, **how) -> subprocess.CompletedProcess:
        return self.here("tasks", "nightly", "--date", day, *FAST, *args, **how)

    def outcome(self) -> Outcome | None:
        return read_outcome(self.root / "last_outcome.json")

    def start_nightly(self, *args: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "tasks", "nightly", "--date", DAY, *FAST, *args]
        how = {"env": self.environment({}), "cwd": PROJECT, "text": True}
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **how)


def samples(path: Path) -> dict[str, list[tuple[dict, float]]]:
    """Metric → labels and values, as the parser of Prometheus's own client reads the file."""
    found: dict[str, list[tuple[dict, float]]] = {}
    for family in text_string_to_metric_families(path.read_text()):
        assert family.documentation
        assert family.type == "gauge"
        for sample in family.samples:
            found.setdefault(sample.name.removeprefix("tensorcraft_"), []).append((sample.labels, sample.value))
    return found
