"""Sharing an artifact: whole or not at all, whatever the network, the remote or another machine does."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
import time_machine
from moto_server import ENVIRONMENT, files_of

from pipeline.artifacts import layout
from pipeline.artifacts.manifest import MANIFEST_NAME, check_files, read_fetched, read_manifest, seal, stray_files
from pipeline.errors import DamagedArtifactError, RemoteError, StorageError
from pipeline.remote import artifacts
from pipeline.remote.artifacts import Pushed, Remote
from pipeline.remote.objects import Objects

KIND = "runs"


def fetch(remote: Remote, expected: str, folder: Path) -> Path:
    held = remote.find(KIND, expected)
    assert held
    remote.fetch(KIND, held, folder, root=folder.parent)
    return folder


def test_a_pushed_artifact_is_fetched_byte_for_byte_and_marked(remote, make_artifact, expected, tmp_path):
    made = make_artifact()
    assert remote.find(KIND, expected) is None
    assert remote.push(KIND, made) is Pushed.NEW
    fetched = fetch(remote, expected, tmp_path / "elsewhere" / "run")
    assert files_of(fetched) == files_of(made)
    assert read_fetched(fetched)["remote"] == remote.url
    assert read_fetched(made) is None
    manifest = read_manifest(fetched)
    assert stray_files(fetched, {entry["name"] for entry in manifest["files"]}) == []
    assert not (fetched.parent / layout.FETCHING / expected).exists()


def test_a_fetched_artifact_is_not_digested_again(remote, make_artifact, expected, tmp_path, monkeypatch):
    remote.push(KIND, make_artifact())
    fetched = fetch(remote, expected, tmp_path / "elsewhere")
    monkeypatch.setattr("pipeline.artifacts.manifest.sha256_of", lambda path: pytest.fail(f"digests {path}"))
    check_files(fetched, read_manifest(fetched))


def test_the_same_content_is_stored_once(remote, make_artifact, expected):
    remote.push(KIND, make_artifact())
    keys = [one.key for one in remote.objects.list()]
    # Four files, two of which are alike, and the manifest.
    assert len(keys) == 4
    assert f"{KIND}/{expected}/{MANIFEST_NAME}" in keys


def test_the_first_push_wins(remote, make_artifact, expected, tmp_path):
    first, same = make_artifact("first"), make_artifact("same")
    other = make_artifact("other", {"a.bin": b"another"})
    assert remote.push(KIND, first) is Pushed.NEW
    assert remote.push(KIND, same) is Pushed.SAME
    assert remote.push(KIND, other) is Pushed.CONFLICT
    assert files_of(fetch(remote, expected, tmp_path / "fetched")) == files_of(first)


def test_a_newer_artifact_replaces_the_stored_one(remote, make_artifact, expected, tmp_path):
    other = make_artifact("other", {"a.bin": b"another"})
    remote.push(KIND, make_artifact("first"))
    assert remote.push(KIND, other, replace=True) is Pushed.NEW
    assert files_of(fetch(remote, expected, tmp_path / "fetched")) == files_of(other)


@pytest.mark.parametrize(("grace", "written_again"), [(timedelta(days=1), False), (timedelta(days=-1), True)])
def test_an_object_that_may_be_cleared_away_is_written_again_before_a_manifest_names_it(
    remote, make_artifact, expected, monkeypatch, grace, written_again
):
    made = make_artifact()
    remote.push(KIND, made)
    # As a push leaves it that was cut before its manifest.
    remote.objects.delete(f"{KIND}/{expected}/{MANIFEST_NAME}")
    monkeypatch.setattr(artifacts, "GRACE", grace)
    put, written = remote.objects.put, []
    monkeypatch.setattr(remote.objects, "put", lambda key, content: (written.append(key), put(key, content)))
    assert remote.push(KIND, made) is Pushed.NEW
    assert bool(written) is written_again


def test_an_older_artifact_replaces_nothing(remote, make_artifact, expected):
    with time_machine.travel(datetime.now(UTC) - timedelta(minutes=1)):
        earlier = make_artifact("earlier")
    remote.push(KIND, make_artifact("later", {"a.bin": b"another"}))
    assert remote.push(KIND, earlier, replace=True) is Pushed.CONFLICT


def test_objects_that_are_missing_are_put_back(remote, make_artifact, expected, tmp_path):
    made = make_artifact()
    remote.push(KIND, made)
    for one in [one for one in remote.objects.list() if "/files/" in one.key]:
        remote.objects.delete(one.key)
    assert remote.push(KIND, made) is Pushed.SAME
    assert files_of(fetch(remote, expected, tmp_path / "fetched")) == files_of(made)


@pytest.mark.parametrize("broken", ["manifest", "file"])
def test_a_damaged_artifact_is_repaired_by_a_machine_with_a_copy(
    overwrite, remote, make_artifact, expected, tmp_path, broken
):
    made = make_artifact("made")
    other = make_artifact("other", {"a.bin": b"another"})
    remote.push(KIND, other)
    (file,) = (one.key for one in remote.objects.list() if "/files/" in one.key)
    overwrite(f"{KIND}/{expected}/{MANIFEST_NAME}" if broken == "manifest" else file, b"{} wow")
    with pytest.raises(DamagedArtifactError):
        fetch(remote, expected, tmp_path / "fetched")
    assert remote.push(KIND, made, mend=True) is Pushed.NEW
    assert files_of(fetch(remote, expected, tmp_path / "fetched")) == files_of(made)


@pytest.mark.parametrize("suffix", ["", ".part"])
def test_leftovers_of_an_earlier_fetch_are_verified(remote, make_artifact, expected, tmp_path, suffix):
    made = make_artifact()
    remote.push(KIND, made)
    for entry in read_manifest(made)["files"]:
        left = tmp_path / layout.FETCHING / expected / f"{entry['sha256']}{suffix}"
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_bytes(bytes(entry["bytes"]))
    assert files_of(fetch(remote, expected, tmp_path / "fetched")) == files_of(made)


def test_a_disk_that_cannot_be_written_is_named(remote, make_artifact, expected, tmp_path):
    remote.push(KIND, make_artifact())
    (tmp_path / layout.FETCHING).write_text("a file")
    with pytest.raises(StorageError, match=str(tmp_path)):
        fetch(remote, expected, tmp_path / "fetched")


def test_of_many_that_push_at_once_one_is_first_and_what_is_there_is_theirs(remote, make_artifact, expected, tmp_path):
    made = [make_artifact(f"made{number}", {"a.bin": bytes([number]) * 100_000}) for number in range(6)]
    barrier = threading.Barrier(len(made))

    def push(folder: Path) -> Pushed:
        barrier.wait()
        return remote.push(KIND, folder)

    with ThreadPoolExecutor(len(made)) as pool:
        outcomes = list(pool.map(push, made))
    assert sorted(outcomes) == sorted([Pushed.NEW, *[Pushed.CONFLICT] * 5])
    first = made[outcomes.index(Pushed.NEW)]
    assert files_of(fetch(remote, expected, tmp_path / "fetched")) == files_of(first)


def test_a_commit_whose_answer_was_lost_is_known_to_be_ours(behind_proxy, make_artifact, expected):
    def lose_the_answer(number, method, path):
        is_commit = method == "PUT" and path.endswith(MANIFEST_NAME)
        return "unanswered" if is_commit and not lost.append(number) and len(lost) == 1 else "pass"

    lost: list[int] = []
    remote, _ = behind_proxy(lose_the_answer)
    assert remote.push(KIND, make_artifact()) is Pushed.NEW
    assert len(lost) == 2, "it was tried again"


@pytest.mark.parametrize("fault", ["cut", "unanswered", 500, 503, "half"])
def test_a_temporary_failure_is_retried(behind_proxy, make_artifact, expected, tmp_path, fault):
    # Every third request.
    remote, proxy = behind_proxy(lambda number, method, path: fault if number % 3 == 1 else "pass")
    made = make_artifact()
    assert remote.push(KIND, made) is Pushed.NEW
    assert files_of(fetch(remote, expected, tmp_path / "fetched")) == files_of(made)
    assert len(proxy.requests) > 12


@pytest.mark.parametrize(("status", "words"), [(507, "507"), (403, "credentials"), (404, "bucket")])
def test_a_remote_that_takes_nothing_is_an_error_of_one_line(behind_proxy, make_artifact, expected, status, words):
    remote, _ = behind_proxy(lambda number, method, path: status if method == "PUT" else "pass")
    with pytest.raises(RemoteError, match=words) as raised:
        remote.push(KIND, make_artifact())
    assert "\n" not in str(raised.value)
    assert "AKIA" not in str(raised.value)
    assert remote.find(KIND, expected) is None


def test_a_cut_costs_what_was_under_way(behind_proxy, make_artifact, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(artifacts, "_RANGE_BYTES", 10_000)
    monkeypatch.setattr(artifacts, "_AT_A_TIME", 1)
    made = make_artifact()
    received = []

    def cut_in_the_middle(number, method, path):
        if method != "GET" or "/files/" not in path:
            return "pass"
        received.append(path)
        return 404 if len(received) == 20 else "pass"

    remote, _ = behind_proxy(cut_in_the_middle)
    remote.push(KIND, made)
    with pytest.raises(RemoteError):
        fetch(remote, expected, tmp_path / "fetched")
    assert not (tmp_path / "fetched").exists()
    assert files_of(fetch(remote, expected, tmp_path / "fetched")) == files_of(made)
    # 1,000 bytes, 300,000 in ranges, and the one that was cut once more.
    assert len(received) == 1 + 30 + 1


# Forks for each command: importing takes longer than the work. Prints the process's id, then its exit code.
FORKING = """
import json, os, sys
from pathlib import Path
from pipeline.remote.artifacts import Remote
from pipeline.remote.objects import Objects
for line in sys.stdin:
    what, url, endpoint, folder, expected = json.loads(line)
    if (child := os.fork()) == 0:
        remote = Remote(Objects(url, endpoint=endpoint))
        if what == "push":
            remote.push("runs", Path(folder))
        else:
            remote.fetch("runs", remote.find("runs", expected), Path(folder), root=Path(folder).parent)
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def forking() -> Iterator[subprocess.Popen]:
    """A process that pushes and fetches in processes of their own."""
    how = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": {**os.environ, **ENVIRONMENT}, "text": True}
    with subprocess.Popen([sys.executable, "-c", FORKING], **how) as process:
        yield process
        process.stdin.close()


@pytest.mark.parametrize("what", ["push", "fetch"])
def test_killed_at_every_request_nothing_is_there_or_all_of_it(
    store, behind_proxy, make_artifact, expected, tmp_path, forking, what
):
    made = make_artifact(files={"a.bin": b"a" * 1_000, "deep/b.bin": b"b" * 30_000})
    for killed_at in range(100):
        url = store.bucket()
        children: queue.Queue[int] = queue.Queue()

        def kill(number, method, path, *, at=killed_at, children=children):
            if number != at:
                return "pass"
            child = children.get(timeout=300)
            os.kill(child, signal.SIGKILL)
            while psutil.pid_exists(child):
                time.sleep(0.01)
            # As likely before it arrives as after.
            return "unanswered" if at % 2 else "cut"

        _, proxy = behind_proxy(kill)
        seen = Remote(Objects(url, endpoint=store.endpoint))
        target = made if what == "push" else tmp_path / f"fetched{killed_at}" / "run"
        if what == "fetch":
            seen.push(KIND, made)
        print(json.dumps([what, url, proxy.endpoint, str(target), expected]), file=forking.stdin, flush=True)
        children.put(int(forking.stdout.readline()))
        code = int(forking.stdout.readline())
        if what == "push":
            held = seen.find(KIND, expected)
            assert held is None or files_of(fetch(seen, expected, tmp_path / f"after{killed_at}")) == files_of(made)
            assert seen.push(KIND, made) in (Pushed.NEW, Pushed.SAME)
            assert files_of(fetch(seen, expected, tmp_path / f"again{killed_at}")) == files_of(made)
        else:
            assert not target.exists() or files_of(target) == files_of(made)
            assert files_of(fetch(seen, expected, target)) == files_of(made)
        if code == 0:
            # It was done before so many requests.
            assert killed_at >= 3
            return
        assert code == -signal.SIGKILL
    pytest.fail("more requests than expected")


def put_manifest(overwrite, expected, manifest) -> None:
    manifest["seal"] = seal(manifest)
    overwrite(f"{KIND}/{expected}/{MANIFEST_NAME}", json.dumps(manifest).encode())


# What every manifest is checked for is in DAMAGES of artifacts/test_manifest.py: here is one case of it, and what only
# a manifest from elsewhere may get wrong.
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda manifest: manifest["files"][0].update(name="../../escaped"), "leads out"),
        (lambda manifest: manifest.update(host=["x"]), "not a text"),
        (lambda manifest: manifest.update(fallback="trained on cpu"), "not final"),
        (lambda manifest: manifest["files"][0].update(bytes=10**400), "lists more than"),
        (lambda manifest: manifest["files"][0].update(name="deep"), "also a folder"),
        (lambda manifest: manifest["files"][0].update(name="fetched.json"), "a reserved name"),
    ],
)
def test_a_manifest_that_is_none_of_ours_is_refused(
    overwrite, remote, make_artifact, expected, tmp_path, change, words
):
    made = make_artifact()
    remote.push(KIND, made)
    manifest = json.loads((made / MANIFEST_NAME).read_bytes())
    change(manifest)
    put_manifest(overwrite, expected, manifest)
    with pytest.raises(DamagedArtifactError, match=words):
        fetch(remote, expected, tmp_path / "fetched")
    assert not (tmp_path / "fetched").exists()


def test_the_artifact_of_another_fingerprint_is_refused(overwrite, remote, make_artifact, expected):
    other = make_artifact("other", identity={"settings": {"seed": 2}})
    put_manifest(overwrite, expected, json.loads((other / MANIFEST_NAME).read_bytes()))
    with pytest.raises(DamagedArtifactError, match="expected another fingerprint"):
        remote.find(KIND, expected)


@pytest.mark.parametrize("content", [b"", b"a" * 999, b"b" * 1_000, b"a" * 100_000], ids=len)
def test_a_file_that_is_not_what_the_manifest_lists_is_refused(
    overwrite, remote, make_artifact, expected, tmp_path, content
):
    made = make_artifact()
    remote.push(KIND, made)
    (entry,) = (one for one in read_manifest(made)["files"] if one["name"] == "a.bin")
    overwrite(f"{KIND}/{expected}/files/{entry['sha256']}", content)
    with pytest.raises(DamagedArtifactError, match=entry["sha256"][:12]):
        fetch(remote, expected, tmp_path / "fetched")
    assert not (tmp_path / "fetched").exists()


def test_a_missing_file_is_reported(remote, make_artifact, expected, tmp_path):
    remote.push(KIND, make_artifact())
    for one in [one for one in remote.objects.list() if one.num_bytes == 300_000]:
        remote.objects.delete(one.key)
    with pytest.raises(DamagedArtifactError, match="expected 300,000 bytes, found none"):
        fetch(remote, expected, tmp_path / "fetched")


def test_a_manifest_of_more_than_it_can_be_is_not_read(overwrite, remote, expected, monkeypatch):
    monkeypatch.setattr(artifacts, "_MANIFEST_BYTES", 1_000)
    overwrite(f"{KIND}/{expected}/{MANIFEST_NAME}", b"x" * 1_001)
    with pytest.raises(RemoteError, match="at most 1,000 bytes"):
        remote.find(KIND, expected)


def test_an_artifact_that_was_changed_here_is_not_pushed(remote, make_artifact, expected):
    made = make_artifact()
    (made / "a.bin").write_bytes(b"c" * 1_000)
    with pytest.raises(DamagedArtifactError):
        remote.push(KIND, made)
    assert remote.find(KIND, expected) is None
