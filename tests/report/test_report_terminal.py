"""The scoreboard in a terminal of any width."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

from luigi_process import PROJECT
from report_runs import report_of


def setup_module() -> None:
    global build_report, format_table, scoreboard
    from pipeline.report import build_report, format_table
    from pipeline.report.sections.scoreboard import scoreboard


def test_the_terminal_table_shows_requested_and_effective_device_and_marks_the_run(make_run):
    folders = [make_run(requested_device="tpu"), make_run("other", fingerprint="b" * 64)]
    lines = format_table(report_of(folders)).splitlines()
    assert max(map(len, lines)) <= 100
    assert [line for line in lines if "*baseline_cnn" in line and "tpu → cpu" in line]
    assert any("auto → cpu" in line and "*" not in line for line in lines)
    assert any("24.80" in line and "73.80%" in line for line in lines)


def test_the_terminal_table_fits_the_terminal_and_cuts_no_figure(make_run):
    digests = {"content_digests": {"train": "1" * 64, "test": "2" * 64}, "steps_per_epoch": 390}
    folders = [make_run(f"run{n}", fingerprint=f"{n:064x}", global_batch_size=128 * n, **digests) for n in (1, 2)]
    report = build_report(folders, current=[f"{1:064x}"])
    for width in (32, 40, 60, 99, 100, 119, 120, 200):
        text = format_table(report, width=width)
        assert max(map(len, text.splitlines())) <= width
        if width < 100:
            figures = ("73.80%", "10,012", "24.80", "auto → cpu")
            assert all(re.search(rf"(^| ){re.escape(figure)}( |$)", text, re.MULTILINE) for figure in figures), text


def test_the_terminal_shows_the_visible_columns_of_the_scoreboard_at_any_width(make_run):
    sizes = {"global_batch_size": 1024, "seed": 7, "augment": "alternating_flip, translate:2", "epochs": 16}
    rest = {"model": "airbench_convnet_small", "training_recipe": "muon", "learning_rate": 0.0025, "patience": 3}
    folders = [make_run(), make_run("other", fingerprint="b" * 64, requested_device="cpu", **sizes, **rest)]
    report = build_report(folders, current=["b" * 64])
    columns, _ = scoreboard(report, "cifar10").visible()
    assert len(columns) == 10
    for width in (40, 80, 100):
        text = format_table(report, width=width)
        assert max(map(len, text.splitlines())) <= width
        assert all(word in text for column in columns for word in column.title.split())
        assert "hosts" not in text
        for cell in ("1,024", "73.80%", "24.80", "10,012", "*airben"):
            assert cell in text
    assert {"*airbench_convnet_", "small"} <= {*text.split()}


def test_the_terminals_width_is_found_and_what_is_piped_has_120_columns():
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from pipeline.report import render; print(render.terminal_columns())"]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    how = {"env": environment, "cwd": PROJECT, "check": True, "timeout": 300}
    for columns in (40, 132):
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        subprocess.run(command, stdin=theirs, stdout=theirs, **how)
        assert os.read(ours, 100).split() == [str(columns).encode()]
    assert subprocess.run(command, stdin=theirs, stdout=subprocess.PIPE, **how).stdout.split() == [b"120"]
    os.close(ours), os.close(theirs)


def test_the_terminal_table_ignores_the_environment(make_run, monkeypatch):
    report = build_report([make_run()], current=[])
    before = format_table(report)
    for name, value in {"COLUMNS": "40", "FORCE_COLOR": "1", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    assert format_table(report) == before
