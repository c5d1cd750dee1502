"""What a run says as it goes: a live line at a terminal, lines elsewhere, objects for those who collect them."""

import json
import os
import pty
import subprocess
import sys
import threading

from luigi.rpc import RPCError
from luigi_process import FAST, PROJECT

from pipeline import progress
from tasks.stage import Visualiser


def test_progress_is_told_to_a_listener_for_as_long_as_it_listens():
    heard = []
    progress.tell("epoch 1/1", 1, 2)
    with progress.heard_by(lambda *words: heard.append(words)):
        progress.tell("epoch 1/1", 2, 2)
    progress.tell("epoch 1/1", 2, 2)
    assert heard == [("epoch 1/1", 2, 2)]


class WatchedTask:
    """Has what Luigi gives a task while its worker runs it; the scheduler is gone after so many requests."""

    def __init__(self, requests: int) -> None:
        self.left, self.percentages = requests, []

    def set_status_message(self, message: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise RPCError("gone")

    def set_progress_percentage(self, percentage: int) -> None:
        self.percentages.append(percentage)


def test_the_visualiser_hears_each_whole_percent_once_and_no_more_once_it_is_gone():
    task = WatchedTask(requests=3)
    visualiser = Visualiser(task)
    for done in range(0, 1000, 5):
        visualiser("epoch 1/1", done, 1000)
    assert (task.percentages, task.left) == ([0, 1, 2], -1)


def at_a_terminal(luigi, *args) -> str:
    """Everything that the pipeline writes to stderr where that is a terminal."""
    ours, theirs = pty.openpty()
    chunks = []

    def read():
        try:
            while chunk := os.read(ours, 4096):
                chunks.append(chunk)
        # How Linux says that the other end is closed.
        except OSError:
            return

    reader = threading.Thread(target=read)
    reader.start()
    command = [sys.executable, "-m", "luigi", "--module", "tasks", "Report", *args]
    environment = luigi.environment({"TERM": "xterm-256color", "COLUMNS": "120"})
    done = subprocess.run(command, env=environment, cwd=PROJECT, stdout=subprocess.PIPE, stderr=theirs, check=False)
    os.close(theirs)
    reader.join()
    os.close(ours)
    text = b"".join(chunks).decode(errors="replace")
    assert done.returncode == 0, text
    return text


def test_a_terminal_has_a_live_line_with_the_log_above_it(first_run, tmp_path):
    # Batches small enough that one epoch takes several executions.
    text = at_a_terminal(first_run.copy(tmp_path), *FAST, "--Train-global-batch-size", "2", "--Train-seed", "1")
    assert "images/s" in text
    assert "\x1b[?25l" in text, "the cursor is hidden while the line lives"
    assert text.rstrip().endswith("s"), "the last line is the log's"
    assert "epoch 1/1: " in text
    assert ", test accuracy " in text


def test_without_a_terminal_there_is_a_line_an_event_and_no_control_character(first_run, tmp_path):
    done = first_run.copy(tmp_path)(*FAST, "--Train-seed", "2", TERM="xterm-256color", FORCE_COLOR="")
    assert done.returncode == 0
    assert not set("\x1b\r") & set(done.stderr)
    assert sum("epoch 1/1" in line for line in done.stderr.splitlines()) == 1


def test_json_lines_carry_run_and_stage(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    done = luigi(*FAST, "--Train-seed", "3", "--Storage-log-format", "json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {line["stage"] for line in lines} >= {"Train", "Report"}
    (run_id,) = {line["run_id"] for line in lines}
    manifest = json.loads((luigi.root / "report" / "manifest.json").read_text())
    assert manifest["run_id"] == run_id
    assert all(line["level"] == "info" and line["time"].endswith("+00:00") for line in lines)


def test_json_lines_of_an_error_hold_its_kind_exit_code_and_stage(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    done = luigi(*FAST, "--Report-min-val-accuracy", "1.0", "--Storage-log-format", "json")
    assert done.returncode == 9
    error = next(line for line in map(json.loads, done.stderr.splitlines()) if line["level"] == "error")
    assert (error["error"], error["exit_code"], error["stage"]) == ("GateError", 9, "Report")
    assert "demanded are at least" in error["message"]


def test_an_unknown_log_format_is_refused(first_run, tmp_path):
    done = first_run.copy(tmp_path)("--Storage-log-format", "yaml")
    assert done.returncode == 2
    assert "[Storage] log_format: expected one of text, json" in done.stderr
    assert "Traceback" not in done.stderr
