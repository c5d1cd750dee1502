"""The six states of an artifact, and what the remote adds to each of them."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.artifacts.manifest import write_manifest
from pipeline.artifacts.publish import publishing
from tasks.process.console import RUN_ID
from tasks.stage import Artifact, State, Status
from tasks.stage import Stage as RealStage

MADE = {"host": "office", "created_at": "2026-11-27T12:00:00+00:00"}


def publish(folder: Path, identity: dict, **details: object) -> None:
    with publishing(folder) as temporary:
        (temporary / "weights").write_bytes(b"12345")
        write_manifest(temporary, stage="Train", identity=identity, details={"experiment": "cifar10", **details})


class Cache:
    """A remote that has every artifact, or none."""

    def __init__(self, has_it: bool) -> None:
        self.has_it = has_it

    def find(self, kind: str, fingerprint: str) -> SimpleNamespace | None:
        return SimpleNamespace(manifest=MADE) if self.has_it else None


class Below:
    """The stage below."""

    task_family, inputs = "Source", ()

    def __init__(self, *, known: bool) -> None:
        self.is_resolved = lambda: known


class Stage:
    """What ``status`` asks of a stage."""

    kind = "runs"
    status, local_status = RealStage.status, RealStage.local_status

    def __init__(self, root: Path, *, known: bool = True, force: str = "", invalid: str = "") -> None:
        self.inputs = [Below(known=known)]
        self.force, self._invalid, self._root = SimpleNamespace(stage=force), invalid, root

    def output(self) -> Artifact:
        return Artifact(self._root / "runs" / "new", {"settings": {"epochs": 2}}, experiment="cifar10")

    def is_forced(self) -> bool:
        return bool(self.force.stage)

    def can_be_fetched(self) -> bool:
        return not self.is_forced()

    def still_true(self, manifest: dict) -> list[str]:
        return [self._invalid] if self._invalid else []


def nothing(root: Path) -> None:
    """An empty storage root."""


def earlier(root: Path) -> None:
    publish(root / "runs" / "old", {"settings": {"epochs": 1}})


def here(root: Path) -> None:
    publish(root / "runs" / "new", {"settings": {"epochs": 2}})


def of_this_run(root: Path) -> None:
    publish(root / "runs" / "new", {"settings": {"epochs": 2}}, run_id=RUN_ID)


def damaged(root: Path) -> None:
    here(root)
    (root / "runs" / "new" / "weights").unlink()


def of_a_later_version(root: Path) -> None:
    publish(root / "runs" / "old", {"settings": {"epochs": 2}, "schema": 2, "code": {"a": {"f": "1"}}})


ON_THE_REMOTE = "built on office at 2026-11-27T12:00:00+00:00"
TABLE = [
    # Before, what the stage says, the state, its reason, and whether the copy on the remote is of use.
    (here, {}, State.FRESH, "", False),
    (nothing, {}, State.NEW, "", True),
    (earlier, {}, State.STALE, "epochs: 1 → 2", True),
    (of_a_later_version, {}, State.STALE, "built by a later version of TensorCraft", True),
    (here, {"invalid": "a.png has changed"}, State.STALE, "a.png has changed", True),
    (of_this_run, {"invalid": "a.png has changed"}, State.FRESH, "", False),
    (here, {"force": "Train"}, State.STALE, "requested by [Force] stage = Train", False),
    (damaged, {}, State.DAMAGED, "got no file", True),
    (here, {"known": False}, State.WAITING, "for Source", False),
    (nothing, {"known": False}, State.WAITING, "for Source", False),
]


@pytest.mark.parametrize("has_remote", [None, False, True])
@pytest.mark.parametrize(("before", "stage", "state", "reason", "is_of_use"), TABLE, ids=range(len(TABLE)))
def test_each_state_has_its_reasons(tmp_path, before: Callable, stage, state, reason, is_of_use, has_remote):
    before(tmp_path)
    found = Stage(tmp_path, **stage).status(None if has_remote is None else Cache(has_remote))
    assert found.state is state
    assert (reason in "; ".join(found.reasons)) if reason else not found.reasons
    assert found.remote == (ON_THE_REMOTE if has_remote and is_of_use else "")
    assert found.is_available == (state is State.FRESH or bool(has_remote and is_of_use))


def test_an_unreadable_artifact_is_not_replaced_by_the_copy_on_the_remote(tmp_path):
    import in_process

    here(tmp_path)
    (tmp_path / "runs" / "new" / "weights").chmod(0)
    with in_process.without_privileges():
        found = Stage(tmp_path).status(Cache(True))
    assert (found.state, found.remote) == (State.UNREADABLE, "")
    assert "chmod u+rwX" in found.reasons[0]


def test_a_state_is_a_word():
    assert [str(state) for state in State] == ["fresh", "stale", "new", "damaged", "unreadable", "waiting"]
    assert str(Status(State.NEW)) == "new"
    assert str(Status(State.STALE, ("epochs: 1 → 2", "seed: 0 → 1"))) == "stale: epochs: 1 → 2; seed: 0 → 1"


def test_a_line_of_the_log_has_five_reasons_at_most():
    reasons = tuple(f"reason {number}" for number in range(8))
    assert str(Status(State.STALE, reasons[:5])) == "stale: " + "; ".join(reasons[:5])
    assert str(Status(State.STALE, reasons)).endswith("reason 4; and 3 more, see tensorcraft status")
