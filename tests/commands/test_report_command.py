"""tensorcraft report: the path of the newest report, a browser that opens it, and a server on loopback."""

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from http.server import ThreadingHTTPServer

import pytest
from luigi_process import PROJECT, Luigi

from tasks.commands.runs import Handler


@pytest.fixture
def luigi(tmp_path):
    """A storage root with a report, a run, and files next to them that no browser may see."""
    luigi = Luigi(tmp_path, tmp_path / "no data")
    for folder in ("report/history/2026-11-28", "runs/cnn-1/tensorboard", "runs/.cnn-2.7.tmp", "records/a"):
        (luigi.root / folder).mkdir(parents=True)
    (luigi.root / "report" / "report.html").write_text("first")
    for name in ("report/report.md", "runs/cnn-1/metrics.jsonl", "runs/.cnn-2.7.tmp/a", "records/a/secret", ".lock"):
        (luigi.root / name).write_text(f"contents of {name}")
    (luigi.root / "runs" / "cnn-1" / "page.html").write_text("<script>alert(1)</script>")
    (luigi.root / "runs" / "cnn-1" / "index.html").symlink_to(luigi.root / "records" / "a" / "secret")
    (luigi.root / "runs" / "circle").symlink_to("circle")
    return luigi


@contextmanager
def served(luigi):
    """A function that requests a path, and returns the status, headers and text of the answer."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=luigi.root)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield partial(ask, server.server_port)
        server.shutdown()


def ask(port: int, path: str, *, host: str | None = None, method: str = "GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request(method, path, headers={"Host": f"127.0.0.1:{port}" if host is None else host})
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read().decode()


def test_the_path_of_the_report_is_printed(luigi):
    done = luigi.command("report")
    assert (done.returncode, done.stdout) == (0, f"Report: {luigi.root / 'report' / 'report.html'}\n")


def test_a_root_without_a_report_names_the_command_that_makes_one(tmp_path):
    done = Luigi(tmp_path, tmp_path).command("report", "--open")
    assert done.returncode == 2
    assert 'report.html: expected a report, found none. Run "tensorcraft run" to make one.' in done.stderr


def test_open_shows_the_file_in_a_browser(luigi, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    done = luigi.command("report", "--open")
    assert opened == [(luigi.root / "report" / "report.html").as_uri()]
    assert done.returncode == 0


def test_the_page_may_run_its_script_and_states_when_it_was_changed(luigi):
    page = luigi.root / "report" / "report.html"
    with served(luigi) as ask:
        status, headers, text = ask("/report/report.html")
        assert (status, text) == (200, "first")
        assert "Content-Security-Policy" not in headers
        os.utime(page, (0, 0))
        _, headers, text = ask("/report/report.html", method="HEAD")
        assert (headers["Last-Modified"], text) == ("Thu, 01 Jan 1970 00:00:00 GMT", "")
        page.unlink()
        assert ask("/report/report.html")[0] == 404


def test_the_start_page_is_the_report(luigi):
    with served(luigi) as ask:
        status, headers, _ = ask("/")
    assert (status, headers["Location"]) == (302, "/report/report.html")


def test_files_of_runs_are_shown_and_run_no_scripts(luigi):
    with served(luigi) as ask:
        status, headers, text = ask("/runs/cnn-1/metrics.jsonl")
        assert (status, text) == (200, "contents of runs/cnn-1/metrics.jsonl")
        assert headers["Content-Type"].startswith("text/plain")
        assert headers["X-Content-Type-Options"] == "nosniff"
        status, headers, _ = ask("/runs/cnn-1/page.html")
        assert (status, headers["Content-Security-Policy"]) == (200, "sandbox")


def test_a_folder_of_a_run_is_listed_even_if_it_has_an_index(luigi):
    with served(luigi) as ask:
        status, _, listing = ask("/runs/cnn-1/")
        assert status == 200
        assert "metrics.jsonl" in listing
        assert "contents of" not in listing
        status, headers, _ = ask("/runs/cnn-1")
        assert (status, headers["Location"]) == (301, "/runs/cnn-1/")


@pytest.mark.parametrize(
    "path",
    [
        "/records/a/secret",
        "/records/",
        "/.lock",
        "/report/../records/a/secret",
        "/report/%2e%2e/records/a/secret",
        "/runs/..%2f..%2f..%2f..%2f..%2f..%2fetc/passwd",
        "//etc/passwd",
        "/runs/.cnn-2.7.tmp/a",
        "/runs/cnn-1/index.html",
        "/runs/circle",
        "/runs/%00",
        "/runs/" + "x" * 1000,
        "/nothing",
    ],
)
def test_everything_else_is_refused(luigi, path):
    with served(luigi) as ask:
        status, _, text = ask(path)
    assert status == 404
    assert "secret" not in text.replace("records/a/secret", "")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "", "127.0.0.1", "127.0.0.1:1"])
def test_another_host_name_is_refused(luigi, host):
    with served(luigi) as ask:
        port = ask.args[0]
        assert ask("/report/report.html", host=host.format(port=port))[0] == 421
        assert ask("/report/report.html", host=f"localhost:{port}")[0] == 200


def test_a_method_that_changes_something_is_refused(luigi):
    with served(luigi) as ask:
        assert ask("/report/report.html", method="POST")[0] == 501


def test_a_port_in_use_is_one_error(luigi):
    with served(luigi) as ask:
        done = luigi.command("report", "--serve", "--port", str(ask.args[0]))
    assert done.returncode == 2
    assert f"--port: cannot listen on {ask.args[0]} (" in done.stderr
    assert luigi.command("report", "--serve", "--port", "70000").returncode == 2


def test_the_command_serves_until_ctrl_c(luigi):
    command = [sys.executable, "-m", "tasks", "report", "--serve", "--port", "0"]
    environment = luigi.environment({"PYTHONUNBUFFERED": "1"})
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": PROJECT, "env": environment}
    with subprocess.Popen(
        command, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler), **how
    ) as process:
        port = re.fullmatch(r"Report: http://127\.0\.0\.1:(\d+)/report/report\.html\n", process.stdout.readline())[1]
        assert process.stdout.readline() == "Press Ctrl-C to stop.\n"
        assert "first" in ask(int(port), "/report/report.html")[2]
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=300) == ("", "")
    assert process.returncode == 0
