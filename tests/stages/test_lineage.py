"""OpenLineage events of stages, as a receiver on this machine gets them."""

import os
import socket
import threading
import time

import in_process
import luigi
import pytest
from listeners import listening_webhook
from luigi_process import FAST, TINY

from pipeline.artifacts.manifest import read_manifest
from tasks.settings import in_force

pytest.importorskip("openlineage.client")

HOST = f"file://{socket.gethostname()}"


@pytest.fixture
def receiver(monkeypatch):
    """A receiver of events, and the environment that names it. It may be slow."""
    monkeypatch.setattr("tasks.lineage._SECONDS", 300)
    with listening_webhook() as webhook:
        webhook.environment = environment_for(webhook.url.removesuffix(webhook.secret))
        yield webhook


@pytest.fixture
def silent():
    """The environment that names a server that never answers, and its connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections = []

        def accept():
            while True:
                try:
                    connections.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield environment_for(f"http://127.0.0.1:{server.getsockname()[1]}"), connections
        for connection in connections:
            connection.close()


def environment_for(address):
    return {"OPENLINEAGE_URL": address, "NO_PROXY": "127.0.0.1"}


def follow_source(tmp_path, environment, *errors, settings=()):
    """Let a Source stage start, and then succeed or fail."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("OPENLINEAGE")}
    with in_process.started("tasks", cwd=tmp_path, env={**given, "HOME": str(tmp_path), **environment}):
        words = ["--module", "tasks", "Report", "--Storage-root", str(tmp_path), *settings]
        with in_force(words):
            from tasks import Source

            stage = Source()
            stage.trigger_event(luigi.Event.START, stage)
            stage.trigger_event(luigi.Event.FAILURE if errors else luigi.Event.SUCCESS, stage, *errors)
            return stage.output().folder


def test_a_stage_that_starts_and_succeeds_has_two_events_of_one_run(tmp_path, receiver):
    folder = follow_source(tmp_path, receiver.environment | {"OPENLINEAGE_NAMESPACE": "team"})
    first, last = receiver.taken
    assert [first["eventType"], last["eventType"]] == ["START", "COMPLETE"]
    assert first["run"]["runId"] == last["run"]["runId"]
    assert (last["job"]["namespace"], last["job"]["name"]) == ("team", "cifar10.Source")
    assert [(each["namespace"], each["name"]) for each in last["inputs"]] == [("dataset", "cifar10")]
    assert [(each["namespace"], each["name"]) for each in last["outputs"]] == [(HOST, str(folder))]


def test_the_error_of_a_stage_is_sent_without_passwords(tmp_path, receiver):
    (tmp_path / "photos").mkdir()
    settings = ["--Source-dataset", "folder", "--Source-path", str(tmp_path / "photos")]
    follow_source(tmp_path, receiver.environment, OSError("no https://me:secret@host/x"), settings=settings)
    last = receiver.taken[-1]
    assert last["eventType"] == "FAIL"
    assert last["run"]["facets"]["errorMessage"]["message"].startswith("OSError: no https://")
    assert "secret" not in str(receiver.taken)
    assert last["inputs"][0]["name"] == str(tmp_path / "photos")


@pytest.mark.parametrize("environment", [{}, {"OPENLINEAGE_NAMESPACE": "team"}])
def test_nothing_is_sent_or_printed_without_a_receiver(tmp_path, environment, capfd):
    follow_source(tmp_path, environment)
    assert capfd.readouterr() == ("", "")


def test_nothing_is_sent_if_the_client_is_disabled(tmp_path, receiver):
    follow_source(tmp_path, receiver.environment | {"OPENLINEAGE_DISABLED": "true"})
    assert receiver.asked == 0


def test_the_file_of_the_client_names_the_receiver(tmp_path, receiver):
    address = receiver.environment["OPENLINEAGE_URL"]
    (tmp_path / "openlineage.yml").write_text(f"transport: {{type: http, url: '{address}'}}\n")
    follow_source(tmp_path, {"NO_PROXY": "127.0.0.1"})
    assert [event["eventType"] for event in receiver.taken] == ["START", "COMPLETE"]


@pytest.mark.parametrize(
    "environment", [{"OPENLINEAGE_URL": "no address"}, {"OPENLINEAGE__TRANSPORT__TYPE": "unheard of"}]
)
def test_invalid_settings_of_the_client_are_one_warning(tmp_path, environment, capfd):
    follow_source(tmp_path, environment)
    said = capfd.readouterr().err
    assert said.count("This run sends no more events to OpenLineage.") == 1
    assert "Traceback" not in said


@pytest.mark.parametrize("answer", [500, 401])
def test_a_receiver_that_refuses_gets_no_further_event(tmp_path, receiver, answer, capfd, monkeypatch):
    from tasks import lineage

    monkeypatch.setattr(lineage, "_SECONDS", 0.3)
    receiver.answers = [answer] * 20
    follow_source(tmp_path, receiver.environment)
    assert capfd.readouterr().err.count("This run sends no more events to OpenLineage.") == 1
    assert receiver.taken == []


def test_a_receiver_that_does_not_answer_is_given_up_once(tmp_path, silent, capfd, monkeypatch):
    from tasks import lineage

    monkeypatch.setattr(lineage, "_SECONDS", 0.2)
    environment, connections = silent
    follow_source(tmp_path, environment)
    assert (
        capfd.readouterr().err.count("This run sends no more events to OpenLineage. The receiver did not respond.") == 1
    )
    until = time.monotonic() + 300
    while not connections and time.monotonic() < until:
        time.sleep(0.05)
    assert len(connections) == 1


@pytest.mark.slow
def test_a_run_sends_its_stages_with_their_artifacts(first_run, tmp_path, receiver):
    luigi = first_run.copy(tmp_path)
    done = luigi(*FAST, *TINY, "--Train-seed", "5", **receiver.environment)
    assert done.returncode == 0, done.stderr
    types = [(event["job"]["name"], event["eventType"]) for event in receiver.taken]
    assert types == [(f"cifar10.{stage}", kind) for stage in ("Train", "Report") for kind in ("START", "COMPLETE")]
    (train, report) = (event for event in receiver.taken if event["eventType"] == "COMPLETE")
    (run,) = (each["name"] for each in train["outputs"])
    assert run in [each["name"] for each in report["inputs"]]
    assert run.rpartition("-")[2] in {read_manifest(folder)["fingerprint"][:12] for folder in luigi.root.glob("runs/*")}
    assert [each["name"] for each in train["inputs"]] == [str(folder) for folder in luigi.root.glob("records/*")]


@pytest.mark.slow
def test_a_run_ends_well_although_the_receiver_does_not_answer(first_run, tmp_path, silent):
    luigi, (environment, connections) = first_run.copy(tmp_path), silent
    done = luigi(*FAST, *TINY, "--Train-seed", "6", **environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("OpenLineage") == 1
    # The client repeats the first event as long as the run lasts.
    requests = [request for connection in connections if (request := connection.recv(1 << 20))]
    assert requests
    assert all(b'"START"' in request and b"cifar10.Train" in request for request in requests)
