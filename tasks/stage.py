"""Artifacts with their states, and the base class of the stages, which are Luigi tasks.

A stage has an identity, builds its artifact in ``make``, and lists in ``still_true`` the reasons why an artifact with
the same identity is no longer valid. A stage is complete if its inputs are complete and its artifact is fresh. Luigi
does not check the inputs of a complete task.
"""

import abc
import contextlib
import logging
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path

import luigi

from pipeline.artifacts.fingerprint import (
    IDENTITY_SCHEMA,
    code_digests,
    differences,
    fingerprint,
    package_versions,
    printable,
)
from pipeline.artifacts.layout import artifact_folders
from pipeline.artifacts.manifest import check_files, read_fetched, read_manifest, unreadable, write_manifest
from pipeline.artifacts.publish import publishing
from pipeline.errors import DamagedArtifactError, UnreadableArtifactError
from pipeline.settings.schema import StageSettings
from pipeline.training.heartbeat import end_all
from tasks import remote_cache
from tasks.process import console, lock
from tasks.process.console import RUN_ID
from tasks.process.interrupt import time_limit
from tasks.remote_cache import RemoteCache
from tasks.settings import Configured, Force, Storage, check_config_file, of_this_root, root_folder

_logger = logging.getLogger(__name__)
# Cached, because a stage computes its identity several times, and code and packages do not change in a process.
_code_digests, _package_versions = cache(code_digests), cache(package_versions)
# In a line of the log, and the number of changed files in a status.
MAX_REASONS = 5


class State(StrEnum):
    """How an artifact relates to what the settings, the code and the inputs require."""

    FRESH = "fresh"
    STALE = "stale"
    #: No earlier artifact is comparable.
    NEW = "new"
    DAMAGED = "damaged"
    #: It exists, but this user may not read it.
    UNREADABLE = "unreadable"
    #: Its inputs are not known yet.
    WAITING = "waiting"


@dataclass(frozen=True)
class Status:
    """State of an artifact on this machine."""

    state: State
    #: One line each, also if the name of a file has several.
    reasons: tuple[str, ...] = ()
    #: When and on which machine the copy on the remote was made. Empty if it is not needed or there is none.
    remote: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reasons", tuple(map(printable, self.reasons)))

    def __str__(self) -> str:
        between = " " if self.state is State.WAITING else ": "
        reasons = list(self.reasons[: MAX_REASONS + 1])
        # One more would take the place of the last reason, which may be a number of files.
        if len(self.reasons) > MAX_REASONS + 1:
            reasons[MAX_REASONS:] = [f"and {len(self.reasons) - MAX_REASONS} more, see tensorcraft status"]
        return between.join([self.state, "; ".join(reasons)]) if reasons else self.state

    @property
    def is_fresh(self) -> bool:
        """Whether the artifact is here and valid."""
        return self.state is State.FRESH

    @property
    def is_available(self) -> bool:
        """Whether the artifact is fresh here, or on the remote."""
        return self.is_fresh or bool(self.remote)


@dataclass(frozen=True, eq=False)
class Artifact:
    """The artifact that an identity requires, whether it exists or not."""

    folder: Path
    identity: Mapping
    #: An artifact that does not exist is compared with others of the same experiment.
    experiment: str = ""

    @property
    def expected(self) -> str:
        """The fingerprint of the identity."""
        return fingerprint(self.identity)

    def manifest(self) -> dict:
        """The artifact's manifest, see ``read_manifest``."""
        return read_manifest(self.folder)

    def status(self) -> Status:
        """State of the files, compared with the identity."""
        try:
            if not self.folder.is_dir():
                return self._compare_with_nearest()
            manifest = self.manifest()
            check_files(self.folder, manifest)
        except UnreadableArtifactError as error:
            return Status(State.UNREADABLE, (str(error),))
        except PermissionError:
            return Status(State.UNREADABLE, (str(unreadable(self.folder)),))
        except DamagedArtifactError as error:
            return Status(State.DAMAGED, (error.args[0].rstrip("."),))
        if manifest["fingerprint"] != self.expected:
            return Status(State.STALE, tuple(differences(manifest["identity"], self.identity)))
        return Status(State.FRESH)

    def _compare_with_nearest(self) -> Status:
        """Compare with the artifact that differs least. Prefer the same inputs, then the newest."""
        others = []
        for folder, manifest in manifests_in(self.folder.parent):
            # Earlier versions wrote no experiment.
            if manifest.get("experiment", self.experiment) == self.experiment:
                identity = manifest["identity"]
                changes = differences(identity, self.identity)
                has_inputs = identity.get("upstream") == self.identity.get("upstream")
                others.append(((-len(changes), has_inputs, manifest["created_at"]), changes, folder))
        if not others:
            return Status(State.NEW)
        _, changes, folder = max(others, key=lambda other: other[0])
        compared = [f"compared with {folder.parent.name}/{folder.name}"] if len(others) > 1 else []
        return Status(State.STALE, (*changes, *compared))

    def __str__(self) -> str:
        return str(self.folder)


class Stage(Configured, luigi.Task):
    """A stage of the pipeline. Its parameters are its settings."""

    #: Folder under the storage root that contains the stage's artifacts.
    kind: str
    #: Module of ``pipeline`` that does the work. Its code, and the code it imports, is part of the identity.
    entry: str
    #: Distributions that shape the artifact's bytes.
    packages: tuple[str, ...]
    #: Whether the artifact is downloaded from the remote and uploaded to it.
    is_shared = True
    #: Whether the artifact built here replaces the one on the remote.
    is_renewed = False
    #: Context manager that publishes the folder.
    publishing = staticmethod(publishing)
    #: Result of the build, for the log.
    outcome = "finished in {:.1f} s"

    def __init__(self, *args: object, **kwargs: object) -> None:
        console.configure()
        console.log_as(Storage().log_format)
        super().__init__(*args, **kwargs)
        self.root = root_folder()
        self.task_id = of_this_root(self.task_id)
        check_config_file()
        # Created here together with all inputs, so that an invalid setting is refused before any work starts.
        self.given, self.force = self.make_settings(), Force()
        self.inputs = luigi.task.flatten(self.requires())
        # The stages that need this one. Its outcome may show that their settings are impossible.
        self.dependents: list[Stage] = []
        for task in self.inputs:
            task.dependents.append(self)

    def make_settings(self) -> StageSettings:
        """The stage's validated settings. Some may be ``auto``."""
        return self.parameters(**self.param_kwargs)

    def chosen(self) -> Mapping[str, object]:
        """The value of each setting that is ``auto``. Empty as long as the examples are not known."""
        return {}

    @property
    def settings(self) -> StageSettings:
        """The settings with the values that are chosen for ``auto``."""
        chosen = self.chosen()
        return replace(self.given, **chosen) if chosen else self.given

    @abc.abstractmethod
    def upstream(self) -> object:
        """The inputs as plain data, for the identity. It is called when they are known."""

    @abc.abstractmethod
    def make(self, folder: Path) -> Mapping:
        """Write the artifact into an empty folder. Return details for its manifest.

        With an entry "provisional", a reason, the artifact is not final, and the next run builds it again.
        """

    def still_true(self, manifest: Mapping) -> Sequence[str]:
        """The reasons why an artifact with the present identity is not valid any more, or not final."""
        return [manifest["provisional"]] if manifest.get("provisional") else []

    def bytes_needed(self) -> int:
        """The most that building the artifact takes on the disk at one time."""
        return 2_000_000

    def own_modules(self) -> tuple[str, ...]:
        """User modules that the settings name. Their code is part of the identity."""
        return ()

    def shaping_settings(self) -> dict[str, object]:
        """The requested settings that can change the artifact's bytes."""
        return {name: self.param_kwargs[name] for name, parameter in self.get_params() if parameter.significant}

    def identity(self) -> dict:
        """Everything the artifact is made from."""
        return {
            "schema": IDENTITY_SCHEMA,
            "settings": {**self.shaping_settings(), **self.chosen()},
            "upstream": self.upstream(),
            "code": _code_digests(self.entry, self.own_modules()),
            "packages": _package_versions(self.packages),
        }

    def output(self) -> Artifact:
        """The artifact of the current identity. The name of its folder has the label of the stage."""
        identity = self.identity()
        folder = self.root / self.kind / f"{self.label()}-{fingerprint(identity)[:12]}"
        return Artifact(folder, identity, experiment=self.experiment_name())

    def experiment_name(self) -> str:
        """Name of the experiment. The default is the requested dataset."""
        return self.inputs[0].experiment_name()

    def status(self, cache: RemoteCache | None = None) -> Status:
        """State of the artifact here, and whether the remote or ``cache`` has it."""
        status, cache = self.local_status(), cache or remote_cache.shared()
        # An unreadable artifact is not replaced.
        if status.state in (State.WAITING, State.FRESH, State.UNREADABLE) or not (cache and self.can_be_fetched()):
            return status
        stored = cache.find(self.kind, self.output().expected)
        return replace(status, remote=remote_cache.origin_of(stored.manifest)) if stored else status

    def local_status(self) -> Status:
        """State of the artifact here, and the reasons."""
        if not all(task.is_resolved() for task in self.inputs):
            pending = next(stage for stage in stages_up_to(self) if not stage.is_resolved())
            return Status(State.WAITING, (f"for {pending.task_family}",))
        artifact = self.output()
        status = artifact.status()
        # An artifact that this run has built stays valid during the run.
        if status.state is not State.FRESH or (manifest := artifact.manifest()).get("run_id") == RUN_ID:
            return status
        if self.is_forced():
            return Status(State.STALE, (f"requested by [Force] stage = {self.force.stage}",))
        reasons = self.still_true(manifest)
        return Status(State.STALE, tuple(reasons)) if reasons else status

    def can_be_fetched(self) -> bool:
        """Whether the artifact of another machine can be used."""
        remote = remote_cache.shared()
        return self.is_shared and bool(remote and remote.is_on) and not self.is_forced()

    def can_skip(self) -> bool:
        """Whether the artifact is not needed here, because the stages that need it are here or on the remote."""
        others = self.dependents
        if not others or not self.can_be_fetched() or not all(one.status().is_available for one in others):
            return False
        # A stale artifact that exists here is rebuilt, as without a remote.
        exists = self.is_resolved() and self.output().folder.is_dir()
        return not (exists and self.local_status().state is State.STALE)

    def is_forced(self) -> bool:
        """Whether [Force] requests a rebuild of the stage or of an input."""
        return self.task_family == self.force.stage or any(task.is_forced() for task in self.inputs)

    def is_resolved(self) -> bool:
        """Whether the identities of dependent stages can be computed without any work."""
        return all(task.is_resolved() for task in self.inputs)

    def is_final(self) -> bool:
        """Whether the artifact was built here, and neither it nor an input is provisional."""
        folders = [task.output().folder for task in stages_up_to(self)]
        return not read_fetched(folders[-1]) and not any(map(remote_cache.is_provisional, folders))

    def check(self) -> None:
        """Refuse settings of this stage and its dependents that do not fit the data."""
        for task in self.dependents:
            task.check()

    def complete(self) -> bool:
        """Whether neither this stage nor its inputs have work to do. Otherwise, lock the storage root.

        Luigi calls this in the process that forks its workers. An error ends that process, because Luigi would continue
        after an exception.
        """
        with console.leaving_on_errors():
            is_complete = all(task.complete() for task in self.inputs)
            if is_complete and (self.status().is_fresh or self.can_skip()):
                return True
            self.check()
            lock.hold(self.root, on_busy=Storage().on_busy)
            if is_complete:
                self.prepare()
        return False

    def prepare(self) -> None:
        """Start work that the build waits for. The inputs are complete."""

    def run(self) -> None:
        """Build the artifact and publish it, unless a fresh one exists."""
        with time_limit(self.task_family, self.time_limit_seconds):
            self.make_if_needed()
        if not self.dependents:
            end_all()

    def make_if_needed(self, *, is_wanted: bool = False) -> None:
        """Build or download the artifact, unless it is here. ``is_wanted`` includes artifacts that ``can_skip``."""
        artifact, status = self.output(), self.status()
        if status.is_fresh:
            _logger.info("%s: fresh, reusing %s", self.task_family, artifact.folder.relative_to(self.root))
            return
        if status.state is State.UNREADABLE:
            raise UnreadableArtifactError(*status.reasons)
        if self.can_skip() and not is_wanted:
            _logger.info("%s: skipped, the stages that use it need no rebuild", self.task_family)
            return
        started = time.perf_counter()
        if status.remote and remote_cache.shared().get(self.kind, artifact.expected, artifact.folder):
            _logger.info("%s: downloaded in %.1f s", self.task_family, time.perf_counter() - started)
            return
        self.fetch_inputs()
        _logger.info(
            "%s: building %s (%s)", self.task_family, artifact.folder.relative_to(self.root), self.local_status()
        )
        self.publish(artifact)
        remote = remote_cache.shared()
        if remote and Storage().push == "always" and self.is_shared and self.is_final():
            remote.put(self.kind, self.output().folder, replace=self.is_renewed, keep=self.is_forced())

    def fetch_inputs(self) -> None:
        """Download the inputs that are only on the remote."""
        for task in self.inputs:
            if not task.status().is_fresh:
                task.make_if_needed(is_wanted=True)

    def publish(self, artifact: Artifact) -> None:
        """Build the artifact and publish it atomically."""
        started = time.perf_counter()
        with self.publishing(artifact.folder, bytes_needed=self.bytes_needed()) as temporary:
            details = {
                **self.make(temporary),
                "experiment": artifact.experiment,
                "run_id": RUN_ID,
                "host": socket.gethostname(),
                "seconds": round(time.perf_counter() - started, 3),
            }
            write_manifest(temporary, stage=self.task_family, identity=artifact.identity, details=details)
        _logger.info("%s: %s", self.task_family, self.outcome.format(time.perf_counter() - started))


def stages_up_to(stage: Stage) -> list[Stage]:
    """The stage and all its direct and indirect inputs, the source first."""
    return list(dict.fromkeys([*(upstream for task in stage.inputs for upstream in stages_up_to(task)), stage]))


def differing(settings: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """The settings that differ between several sets of settings."""
    names = [name for name, value in settings[0].items() if any(values[name] != value for values in settings)]
    return [{name: values[name] for name in names} for values in settings]


def manifests_in(folder: Path) -> Iterator[tuple[Path, dict]]:
    """Folder and manifest of each artifact in the folder of a kind. Damaged ones are left out."""
    for path in artifact_folders(folder):
        with contextlib.suppress(DamagedArtifactError):
            yield path, read_manifest(path)
