"""How scheduled runs ended: each cause of an incident reported once to each channel, also from a full disk."""

import json
import shutil

import pytest

from tasks.operations.incidents import (
    MOST_OUTCOMES,
    Outcome,
    due,
    failing_since,
    mark_pending,
    mark_reported,
    remember,
)
from tasks.operations.state_file import read_state, reserve, write_state


def outcome(exit_code: int = 0, stage: str = "", reason: str = "", day: int = 1) -> Outcome:
    return Outcome(
        task="Nightly", started_at=f"2026-11-{day:02}T02:00:00+00:00", seconds=90, exit_code=exit_code, stage=stage,
        reason=reason,
    )  # fmt: skip


def reported(path, outcomes, channel: str = "webhook", accepts=lambda n: True) -> list[list[tuple[str, int]]]:
    """What the channel accepts after each of these outcomes, with the state read and written each time."""
    accepted = []
    for number, one in enumerate(outcomes):
        state = read_state(path)
        accepted.append([])
        for event, of in due(state, one, channel):
            if not accepts(number):
                mark_pending(state, one, channel)
                break
            mark_reported(state, of, channel)
            accepted[-1].append((event, of.exit_code))
        remember(state, one)
        write_state(path, state)
    return accepted


RECOVERY = ("recovery", 0)
PENDING = '{"schema_version": 1, "last_success": null, "since": null, "told": {}, "owed": {"x": [{}]}, "outcomes": []}'


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([0, 0], [[], []]),
        ([3, 3, 3, 0, 0], [[("failure", 3)], [], [], [RECOVERY], []]),
        ([3, 8, 3, 8, 0], [[("failure", 3)], [("failure", 8)], [], [], [RECOVERY]]),
        ([3, 0, 3], [[("failure", 3)], [RECOVERY], [("failure", 3)]]),
    ],
)
def test_each_cause_is_reported_once_and_the_recovery_once(tmp_path, codes, expected):
    outcomes = [outcome(code, "Train", f"{n} MB free") for n, code in enumerate(codes)]
    assert reported(tmp_path / "state", outcomes) == expected


def test_the_same_code_in_another_stage_is_another_cause(tmp_path):
    outcomes = [outcome(6, "Records"), outcome(6, "Train")]
    assert reported(tmp_path / "state", outcomes) == [[("failure", 6)], [("failure", 6)]]


@pytest.mark.parametrize(
    ("codes", "down", "expected"),
    [
        # Down while it fails, and there when it fails again, or when it works again: the failure is reported.
        ([3, 3, 0], {0}, [[], [("failure", 3)], [RECOVERY]]),
        ([3, 0, 0], {0}, [[], [("failure", 3), RECOVERY], []]),
        ([3, 8, 0], {0, 1}, [[], [], [("failure", 3), ("failure", 8), RECOVERY]]),
        ([3, 8, 0], {0}, [[], [("failure", 3), ("failure", 8)], [RECOVERY]]),
        # Down when it works again.
        ([3, 0, 0], {1}, [[("failure", 3)], [], [RECOVERY]]),
        ([3, 0, 0], {0, 1}, [[], [], [("failure", 3), RECOVERY]]),
        ([3, 0, 3, 0], {0, 1}, [[], [], [("failure", 3)], [RECOVERY]]),
    ],
)
def test_what_a_channel_did_not_accept_is_reported_when_the_next_run_ends(tmp_path, codes, down, expected):
    outcomes = [outcome(code, "Train" if code else "") for code in codes]
    assert reported(tmp_path / "state", outcomes, accepts=lambda n: n not in down) == expected


def test_the_state_says_since_when_and_when_all_was_well(tmp_path):
    path = tmp_path / "state"
    reported(path, [outcome(0, day=1), outcome(3, day=2), outcome(8, day=3)])
    state = read_state(path)
    assert state["last_success"] == "2026-11-01T02:01:30+00:00"
    assert state["since"] == "2026-11-02T02:00:00+00:00"
    assert [kept["exit_code"] for kept in state["outcomes"]] == [0, 3, 8]


def test_what_follows_an_end_that_was_not_told_begins_an_incident_of_its_own(tmp_path):
    path, told = tmp_path / "state", []
    for number, code in enumerate([3, 0, 8, 0, 0], start=1):
        state, one = read_state(path), outcome(code, "Train" if code else "", day=number)
        # Down on the second day, when it works again, and on the fourth.
        is_down = number in (2, 4)
        told += [] if is_down else [(of.exit_code, failing_since(state, of)[8:10]) for _, of in due(state, one, "x")]
        reported(path, [one], "x", accepts=lambda _, down=is_down: not down)
    assert told == [(3, "01"), (8, "03"), (0, "03")]


def test_a_failure_that_is_told_late_has_the_beginning_of_its_own_incident(tmp_path):
    path = tmp_path / "state"
    reported(path, [outcome(3, day=1), outcome(8, day=2), outcome(day=3)], accepts=lambda _: False)
    now = outcome(6, day=4)
    events = [
        (of.exit_code, failing_since(read_state(path), of)[8:10]) for _, of in due(read_state(path), now, "webhook")
    ]
    assert events == [(3, "01"), (8, "01"), (6, "04")]


@pytest.mark.parametrize("down", [{1}, {0, 1}, set()])
def test_a_recovery_says_since_when_it_had_failed_however_late_it_is_told(tmp_path, down):
    path, told = tmp_path / "state", []
    for number, one in enumerate([outcome(3, "Train", day=2), outcome(day=3), outcome(day=4)]):
        state = read_state(path)
        since = [failing_since(state, of) for event, of in due(state, one, "webhook") if event == "recovery"]
        told += since if number not in down else []
        reported(path, [one], accepts=lambda _, number=number: number not in down)
    assert told == ["2026-11-02T02:00:00+00:00"]


def test_the_file_stays_as_small_as_the_space_kept_for_it(tmp_path):
    path = tmp_path / "state"
    reported(path, [outcome(n % 2, "Train" * 100, "😀" * 5000) for n in range(MOST_OUTCOMES + 20)])
    assert 20 < len(read_state(path)["outcomes"]) <= MOST_OUTCOMES
    sizes = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    assert len(set(sizes.values())) == 1, sizes


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"schema_version": 2}', '{"schema_version": 1, "told": 3}', PENDING]
)
def test_a_damaged_state_is_begun_anew(tmp_path, content):
    (tmp_path / "state").write_text(content)
    assert read_state(tmp_path / "state")["outcomes"] == []


def test_a_full_disk_has_space_for_the_state_that_was_reserved(disk):
    folder = disk(1)
    path = folder / "state"
    reserve(path)
    free = shutil.disk_usage(folder).free
    (folder / "ballast").write_bytes(bytes(free))
    assert shutil.disk_usage(folder).free == 0
    assert reported(path, [outcome(6, "Train"), outcome(6, "Train")]) == [[("failure", 6)], []]
    assert json.loads(path.read_text())["since"]
