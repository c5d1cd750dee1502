"""What a run says as it goes: a live line at a terminal, lines elsewhere, objects for those who collect them."""

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading

import pytest
import warm
from luigi_process import FAST, PROJECT, TINY, hear_interrupts

from pipeline import progress
from pipeline.errors import DamagedArtifactError
from pipeline.progress import duration

INTERRUPTED = "\nInterrupted. Finished stages are kept. Run the same command again to resume.\n"


def test_a_listener_hears_of_no_more_progress_than_there_is(monkeypatch):
    monkeypatch.setattr(progress, "_listeners", [])
    heard = []
    progress.report("Epoch 1/1", 1, 2, "images")
    progress.listen(lambda *words: heard.append(words))
    # Executions of several steps are counted past the end of the last epoch.
    progress.report("Epoch 1/1", 130, 128, "images")
    assert heard == [("Epoch 1/1", 128, 128, "images")]


def test_an_error_in_words_does_not_show_the_names_of_a_graph():
    said = (
        "{{function_node __wrapped__IteratorGetNext_output_types_1_device_/job:localhost/device:CPU:0}} corrupted "
        "record at 0 [Op:IteratorGetNext] name: "
    )
    assert str(DamagedArtifactError(f"records: {said}")) == "records: corrupted record at 0"


def at_a_terminal(command, environment, start=subprocess.Popen) -> tuple[int, str]:
    """The exit code of a command, and everything that it writes to stderr where that is a terminal."""
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
    environment = environment | {"TERM": "xterm-256color", "COLUMNS": "120"}
    done = start(command, env=environment, cwd=PROJECT, stdout=subprocess.PIPE, stderr=theirs)
    done.communicate(timeout=300)
    os.close(theirs)
    reader.join()
    os.close(ours)
    return done.returncode, b"".join(chunks).decode(errors="replace")


@pytest.mark.slow
def test_a_terminal_has_a_live_line_with_the_log_above_it(first_run, tmp_path):
    # Batches small enough that one epoch takes several executions.
    command = [sys.executable, "-m", "tasks", "Report", *FAST, *TINY, "--Train-global-batch-size", "2"]
    code, text = at_a_terminal(command, first_run.copy(tmp_path).environment({}), warm.WarmPopen)
    assert code == 0, text
    assert "images/s" in text
    assert "\x1b[?25l" in text, "the cursor is hidden while the line lives"
    assert text.rstrip().endswith("s"), "the last line is the log's"
    assert "Epoch 1/1: " in text
    assert ", test accuracy " in text


def test_an_interrupt_clears_the_live_line():
    code = (
        "from tasks.process import console; from pipeline import progress; console.configure(); "
        "console.log_as('text'); progress.report('Epoch 1/2', 1, 2); raise KeyboardInterrupt"
    )
    code, text = at_a_terminal([sys.executable, "-c", code], dict(os.environ))
    assert code == -signal.SIGINT
    shown, _, after = text.partition("Interrupted. Finished stages are kept.")
    assert "Epoch 1/2" in shown
    # The line is erased before the message, and the cursor is visible again.
    assert "\x1b[2K" in shown.rpartition("Epoch 1/2")[2]
    assert "\x1b[?25h" in shown
    assert "Epoch" not in after


def test_json_lines_of_an_error_hold_its_kind_exit_code_and_stage(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    done = luigi(*FAST, "--Report-min-test-accuracy", "1.0", "--Storage-log-format", "json")
    assert done.returncode == 9
    error = next(line for line in map(json.loads, done.stderr.splitlines()) if line["level"] == "error")
    assert (error["error"], error["exit_code"], error["stage"]) == ("GateError", 9, "Report")
    assert "required: at least" in error["message"]


def test_json_lines_stay_json_when_the_run_is_interrupted(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    with open(luigi.root / ".lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = luigi.start(*FAST, "--Train-seed", "4", "--Storage-on-busy", "wait", "--Storage-log-format", "json")
        first = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGINT
    *_, last = map(json.loads, [first, *rest.splitlines()])
    assert (last["level"], last["message"]) == ("warning", INTERRUPTED.strip())


@pytest.mark.parametrize("module", ["Report", "status", "nightly"])
@pytest.mark.parametrize("imported", ["luigi", "tasks.train"])
def test_ctrl_c_during_the_imports_is_one_line(tmp_path, module, imported):
    how = {"INTERRUPT_AT": imported, "PYTHONPATH": str(PROJECT / "tests" / "interrupted_import")}
    done = subprocess.run(
        [sys.executable, "-m", "tasks", module],
        cwd=PROJECT, env={**os.environ, **how}, capture_output=True, text=True, preexec_fn=hear_interrupts,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (-signal.SIGINT, INTERRUPTED), "a shell shows it as 130"


@pytest.mark.slow
def test_a_run_of_a_sweep_is_named_in_its_lines_with_the_time_that_is_left(first_run, tmp_path):
    """Without a terminal there is a line an event, and no control character."""
    luigi = first_run.copy(tmp_path)
    done = luigi(
        *FAST, *TINY, "--seeds", "[5,6]", "--training-recipes", '["baseline"]', TERM="xterm-256color", FORCE_COLOR=""
    )
    assert done.returncode == 0, done.stderr
    assert not set("\x1b\r") & set(done.stderr)
    lines = [line.partition(" ")[2] for line in done.stderr.splitlines()]
    for number, seed in ((1, 5), (2, 6)):
        of_the_run = [line for line in lines if line.startswith(f"run {number}/2, seed {seed}: ")]
        assert sum("Epoch 1/1" in line for line in of_the_run) == 1
        assert any("Train: finished in " in line for line in of_the_run)
    (left,) = [line for line in lines if " left in this sweep" in line]
    assert re.fullmatch(r"run 2/2, seed 6: about \d+ (s|min) left in this sweep", left)
    assert not [line for line in lines if line.startswith("run ") and "Report" in line]


@pytest.mark.slow
def test_json_lines_carry_run_and_stage_and_do_not_say_that_a_skipped_run_is_done(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    no_tpu = ["--devices", '["cpu","tpu"]', "--Train-on-mismatch", "skip"]
    done = luigi(*FAST, *TINY, *no_tpu, "--Train-global-batch-size", "32", "--Storage-log-format", "json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {line["stage"] for line in lines} >= {"Train", "Report"}
    (run_id,) = {line["run_id"] for line in lines}
    assert json.loads((luigi.root / "report" / "manifest.json").read_text())["run_id"] == run_id
    assert all(line["time"].endswith("+00:00") for line in lines)
    skips = [line["level"] for line in lines if line["message"].startswith("Training skipped. ")]
    assert skips == ["warning"]
    of_tpu = [line["message"] for line in lines if line.get("run") == "run 2/2, device tpu"]
    (ended,) = [message for message in of_tpu if "Train: " in message and "building" not in message]
    assert ended == "Train: skipped"


@pytest.mark.parametrize(("seconds", "said"), [(0.2, "1 s"), (89, "89 s"), (90, "2 min"), (3_700, "62 min")])
def test_remaining_time_is_rounded_to_its_precision(seconds, said):
    assert duration(seconds) == said


def test_an_unknown_log_format_is_refused(first_run, tmp_path):
    done = first_run.copy(tmp_path)("--Storage-log-format", "yaml")
    assert done.returncode == 2
    assert "[Storage] log_format: expected one of text, json" in done.stderr
    assert "Traceback" not in done.stderr
