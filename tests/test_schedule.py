"""What became of unattended runs: each cause of an incident told once to each channel, also from a full disk."""

import json
import shutil

import pytest

from pipeline.schedule import MOST_OUTCOMES, Outcome, due, note, read_state, reserve, settle, write_state


def outcome(exit_code: int = 0, stage: str = "", reason: str = "", day: int = 1) -> Outcome:
    return Outcome(
        task="Nightly", started_at=f"2026-11-{day:02}T02:00:00+00:00", seconds=90, exit_code=exit_code, stage=stage,
        reason=reason,
    )  # fmt: skip


def told(path, outcomes, channel: str = "webhook", takes=lambda n: True) -> list[str | None]:
    """What the channel hears of these outcomes, one after the other, each read from the file and written back."""
    heard = []
    for number, one in enumerate(outcomes):
        state = read_state(path)
        event = due(state, one, channel)
        if event and takes(number):
            settle(state, one, channel)
        heard.append(event)
        note(state, one)
        write_state(path, state)
    return heard


@pytest.mark.parametrize(
    ("codes", "heard"),
    [
        ([0, 0], [None, None]),
        ([3, 3, 3, 0, 0], ["failure", None, None, "recovery", None]),
        ([3, 8, 3, 8, 0], ["failure", "failure", None, None, "recovery"]),
        ([3, 0, 3], ["failure", "recovery", "failure"]),
    ],
)
def test_each_cause_is_told_once_and_the_recovery_once(tmp_path, codes, heard):
    assert told(tmp_path / "state", [outcome(code, "Train", f"{n} MB free") for n, code in enumerate(codes)]) == heard


def test_the_same_code_in_another_stage_is_another_cause(tmp_path):
    outcomes = [outcome(6, "Records"), outcome(6, "Train")]
    assert told(tmp_path / "state", outcomes) == ["failure", "failure"]


def test_what_a_channel_did_not_take_is_told_again(tmp_path):
    outcomes = [outcome(3), outcome(3), outcome(0), outcome(0)]
    heard = told(tmp_path / "state", outcomes, takes=lambda n: n in (1, 3))
    assert heard == ["failure", "failure", "recovery", "recovery"]


def test_the_state_says_since_when_and_when_all_was_well(tmp_path):
    path = tmp_path / "state"
    told(path, [outcome(0, day=1), outcome(3, day=2), outcome(8, day=3)])
    state = read_state(path)
    assert state["last_success"] == "2026-11-01T02:01:30+00:00"
    assert state["since"] == "2026-11-02T02:00:00+00:00"
    assert [kept["exit_code"] for kept in state["outcomes"]] == [0, 3, 8]


def test_the_file_stays_as_small_as_the_room_kept_for_it(tmp_path):
    path = tmp_path / "state"
    told(path, [outcome(n % 2, "Train" * 100, "😀" * 5000) for n in range(MOST_OUTCOMES + 20)])
    assert 20 < len(read_state(path)["outcomes"]) <= MOST_OUTCOMES
    sizes = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    assert len(set(sizes.values())) == 1, sizes


@pytest.mark.parametrize("content", ["", "[]", "{", '{"schema_version": 2}', '{"schema_version": 1, "told": 3}'])
def test_a_damaged_state_is_begun_anew(tmp_path, content):
    (tmp_path / "state").write_text(content)
    assert read_state(tmp_path / "state")["outcomes"] == []


def test_a_full_disk_has_room_for_the_state_that_was_reserved(disk):
    folder = disk(1)
    path = folder / "state"
    reserve(path)
    free = shutil.disk_usage(folder).free
    (folder / "ballast").write_bytes(bytes(free))
    assert shutil.disk_usage(folder).free == 0
    assert told(path, [outcome(6, "Train"), outcome(6, "Train")]) == ["failure", None]
    assert json.loads(path.read_text())["since"]
