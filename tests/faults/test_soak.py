"""Soak: a month of scheduled runs in minutes, each run as a schedule runs it, under a clock that moves on by a day.

The nights begin at 02:30 in Berlin from two days before the clocks go back, on the night when it is 02:30 twice, and
go on across a month's end. What befalls them is drawn from a seed: new data, new settings, kills, a network that is
gone, a disk that is full, a start while another is at work, damage. Each morning and at the end it is asked what a
schedule promises: every date has its report or a recorded reason, nothing is damaged, the disk does not fill up, and
each incident was reported once.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from pathlib import Path
from zoneinfo import ZoneInfo

import psutil
import pytest
from luigi_process import FAST, PROJECT, Luigi
from scheduled import Unattended

from tasks.report import read_dated_report, read_dated_reports

pytestmark = pytest.mark.soak

FIRST = date(2026, 10, 23)
STARTS_AT = time_of_day(2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
CLOCKS_GO_BACK = date(2026, 10, 25)
KEEP_RUNS, DISK_MB = 3, 400
# A night with something to train takes about so long here: kills come within it.
WORK_SECONDS = 9


@dataclass
class Night:
    """One night: when it begins, what is new, and what befalls it."""

    date: date
    starts: list[datetime]
    new: str = ""
    befalls: str = ""


def calendar(count: int, chance: random.Random) -> list[Night]:
    """The runs, and what befalls each: of ten or more at least one of every kind, and a kill in one of five."""
    nights = []
    for number in range(count):
        day = FIRST + timedelta(days=number)
        start = datetime.combine(day, STARTS_AT)
        starts = {start.replace(fold=fold).astimezone(UTC) for fold in (0, 1)}
        nights.append(Night(day, sorted(starts)))
    # The first has to make everything, and the last shows that all is well again.
    others = [night for night in nights[1:-1] if night.date != CLOCKS_GO_BACK]
    kinds = ["no network", "full disk", "two starts", "damage", "new data"]
    kills = ["the run is killed", "all is killed"] * max(1, count // 10)
    for night, kind in zip(chance.sample(others, len(others)), kinds + kills, strict=False):
        night.befalls = kind
    for night in others:
        if night.befalls not in ("", "damage", "no network") or (not night.befalls and chance.random() < 0.25):
            night.new = chance.choice(["[Train] seed", "[Train] seed", "[Records] seed"])
    return nights


@dataclass
class Schedule:
    """What a crontab or a timer would do, on a storage root of its own."""

    unattended: Unattended
    data_dirs: Iterator[Path]
    chance: random.Random
    keep_days: int
    seeds: dict[str, int] = field(default_factory=lambda: {"[Train] seed": 0, "[Records] seed": 0})
    #: Stage, exit code and whether the webhook could be reached.
    outcomes: list[tuple[str, int, bool]] = field(default_factory=list)

    def command(self, *args: str, name: str = "nightly") -> list[str]:
        seeds = ["--Train-seed", str(self.seeds["[Train] seed"]), "--Records-seed", str(self.seeds["[Records] seed"])]
        limits = ["--Storage-keep-runs", str(KEEP_RUNS), "--Storage-keep-days", str(self.keep_days)]
        return [sys.executable, "-m", "tasks", name, *args, *FAST, *seeds, *limits]

    def start(self, moment: datetime, command: Sequence[str], **more: str) -> subprocess.Popen:
        """Start it with the clock at this moment."""
        ahead = moment.timestamp() - time.time()
        moved = {"CLOCK_AHEAD_SECONDS": str(ahead), "PYTHONPATH": str(PROJECT / "tests" / "moved_clock")}
        environment = self.unattended.environment({**moved, **more})
        how = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        return subprocess.Popen(command, env=environment, cwd=PROJECT, **how)

    def finish(self, process: subprocess.Popen, *, is_reachable: bool = True) -> int:
        """Wait for the end, and keep how it ended; its exit code."""
        said = process.communicate(timeout=300)[1]
        assert "Traceback" not in said, said
        self.keep(process.returncode, is_reachable=is_reachable)
        return process.returncode

    def keep(self, code: int, *, is_reachable: bool = True) -> None:
        outcome = self.unattended.outcome()
        assert outcome.exit_code == code, f"ended with {code}, recorded is {outcome}"
        self.outcomes.append((outcome.stage, code, is_reachable))

    def run(self, night: Night) -> list[int]:
        """The night as it goes; the exit codes of what was started in it."""
        if night.new:
            self.seeds[night.new] += 1
        return getattr(self, "_" + (night.befalls or "quiet").replace(" ", "_"))(night)

    def _quiet(self, night: Night) -> list[int]:
        return [self.finish(self.start(moment, self.command())) for moment in night.starts]

    def _new_data(self, night: Night) -> list[int]:
        self.unattended.data_dir = next(self.data_dirs)
        return self._quiet(night)

    def _no_network(self, night: Night) -> list[int]:
        """Not even the webhook can be reached on a night that wants a dataset which is not there."""
        nowhere = ["--Source-origin", "tfds", "--Source-dataset", "mnist"]
        process = self.start(night.starts[0], ["unshare", "--net", *self.command(*nowhere)])
        return [self.finish(process, is_reachable=False)]

    def _full_disk(self, night: Night) -> list[int]:
        ballast = self.unattended.root / "ballast"
        with open(ballast, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, psutil.disk_usage(str(self.unattended.root)).free - 2_000_000)
        codes = self._quiet(night)
        ballast.unlink()
        return codes

    def _two_starts(self, night: Night) -> list[int]:
        processes = [self.start(night.starts[0], self.command()) for _ in range(2)]
        while all(process.poll() is None for process in processes):
            time.sleep(0.05)
        processes.sort(key=lambda process: process.poll() is None)
        return [self.finish(process) for process in processes]

    def _damage(self, night: Night) -> list[int]:
        newest = max(self.unattended.root.glob("records/*/manifest.json"), key=lambda path: path.stat().st_mtime).parent
        shard = self.chance.choice(sorted(newest.glob("*.tfrecord-*")))
        content = bytearray(shard.read_bytes())
        content[self.chance.randrange(len(content))] ^= 1 << self.chance.randrange(8)
        shard.write_bytes(content)
        return self._quiet(night)

    def _the_run_is_killed(self, night: Night) -> list[int]:
        process = self.start(night.starts[0], self.command())
        time.sleep(self.chance.uniform(1, WORK_SECONDS))
        for child in psutil.Process(process.pid).children():
            # It may just have ended.
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        return [self.finish(process)]

    def _all_is_killed(self, night: Night) -> list[int]:
        """As when the power goes, but for systemd, which starts what reports it."""
        process = self.start(night.starts[0], self.command())
        time.sleep(self.chance.uniform(1, WORK_SECONDS))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if process.returncode >= 0:
            self.keep(process.returncode)
            return [process.returncode]
        result = {"MONITOR_SERVICE_RESULT": "oom-kill", "MONITOR_EXIT_CODE": "killed", "MONITOR_EXIT_STATUS": "KILL"}
        about = {**result, "MONITOR_UNIT": "tensorcraft.service", "MONITOR_INVOCATION_ID": night.date.isoformat()}
        reporting = self.start(night.starts[0], self.command(name="report-killed"), **about)
        reporting.communicate(timeout=300)
        assert reporting.returncode == 0
        self.keep(128 + signal.SIGKILL)
        return [128 + signal.SIGKILL]


def messages(outcomes: Sequence[tuple[str, int, bool]]) -> list[tuple[str, str, int]]:
    """What the webhook takes: each changed outcome once, and one that it missed with the next run."""
    sent, previous, is_known = [], ("", 0), True
    for stage, code, is_reachable in outcomes:
        is_known &= (stage, code) == previous
        if not is_known and is_reachable:
            sent.append(("failure" if code else "recovery", stage, code))
        previous, is_known = (stage, code), is_known or is_reachable
    return sent


def test_a_month_of_nights(tmp_path, disk, write_tiny_tfds, tmp_path_factory, webhook, count, request):
    if os.geteuid() != 0:
        pytest.skip("a full disk and a network that is gone take root's rights")
    number = request.config.getoption("dates")
    chance = random.Random(number)
    keep_days = max(4, number // 3)
    data_dirs = (write_tiny_tfds(tmp_path_factory.mktemp("tfds"), first=1000 * version) for version in range(9))
    unattended = Unattended(Luigi(disk(DISK_MB), next(data_dirs)), webhook)
    schedule = Schedule(unattended, data_dirs, chance, keep_days)
    history, sizes, is_due = unattended.root / "report" / "history", [], True

    nights = calendar(number, chance)
    for night in nights:
        runs = unattended.artifacts("runs")
        codes = schedule.run(night)
        count[f"nights: {night.befalls or ('new settings' if night.new else 'nothing new')}"] += 1
        sizes.append(sum(path.stat().st_size for path in unattended.root.rglob("*") if path.is_file()) / 1e6)
        made = set(unattended.artifacts("runs")) - set(runs)
        what = f"{night.date} {night.befalls or 'quiet'}, new: {night.new or 'nothing'}"
        print(f"{what}: {codes}, {len(made)} trained, {sizes[-1]:.1f} MB")
        if 0 in codes:
            assert read_dated_report(history / night.date.isoformat()).date == night.date
        else:
            assert unattended.outcome().reason, f"{night}: no report, and no reason"
        is_due |= bool(night.new) or night.befalls == "new data"
        assert is_due or not made, f"{night}: trained again for nothing"
        is_due &= 0 not in codes

    # What the month left, and what an operator would do about the dates that failed.
    last = nights[-1].starts[-1] + timedelta(hours=1)
    dates = ["--start", str(nights[0].date), "--stop", str(last.date() + timedelta(days=1)), "--days-back", str(number)]
    runs = set(unattended.artifacts("runs"))
    assert schedule.finish(schedule.start(last, schedule.command("RangeDaily", "--of", "Nightly", *dates))) == 0
    assert set(unattended.artifacts("runs")) <= runs, "dates that are made up for train nothing"
    kept = read_dated_reports(history)
    wanted = [night.date for night in nights if night.date > last.date() - timedelta(days=keep_days)]
    assert [night.date for night in kept] == wanted
    verify = schedule.start(last, schedule.command(name="verify"))
    assert verify.wait(300) == 0, verify.communicate()[1]

    expected = messages(schedule.outcomes)
    assert [(message["event"], message["stage"], message["exit_code"]) for message in webhook.taken] == expected

    left = unattended.artifacts("runs")
    # Of each date that is kept at most one run, and the newest, the best of either dataset and the present one.
    assert len(left) <= len({run for night in kept for run in night.runs}) + KEEP_RUNS + 3
    assert max(sizes[2 * number // 3 :]) <= 1.25 * max(sizes[: 2 * number // 3])
    count["nights in all"] += number
    count["outcomes, each reported once"] += len(expected)
