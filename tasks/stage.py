"""Stage: what the tasks of the DAG have in common.

A stage states its identity, builds its artifact in ``make``, and says in ``still_true`` whether an artifact with this
identity is still valid. It is complete if all stages below are and its own artifact is fresh: Luigi does not look below
a task that is complete.
"""

import abc
import logging
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import luigi

from pipeline.artifacts.fingerprint import IDENTITY_SCHEMA, code_digests, fingerprint, package_versions
from pipeline.artifacts.manifest import read_fetched, write_manifest
from pipeline.artifacts.publish import publishing
from pipeline.errors import UnreadableArtifactError
from pipeline.settings.schema import StageSettings
from pipeline.training.heartbeat import end_all
from tasks import remote_cache
from tasks.process import console, lock
from tasks.process.console import RUN_ID
from tasks.process.interrupt import time_limit
from tasks.remote_cache import RemoteCache
from tasks.settings import Configured, Force, Storage, check_config_file, of_this_root, root_folder
from tasks.status import Artifact, State, Status

_logger = logging.getLogger(__name__)
# Every stage states its identity several times, and neither changes while a process runs.
_code_digests, _package_versions = cache(code_digests), cache(package_versions)


class Stage(Configured, luigi.Task):
    """One step of the DAG. Its parameters are its settings."""

    #: Folder under the storage root that contains the stage's artifacts.
    kind: str
    #: Module of ``pipeline`` that does the work. Its code, and the code it imports, is part of the identity.
    entry: str
    #: Distributions that shape the artifact's bytes.
    packages: tuple[str, ...]
    #: Whether it is downloaded from the remote and uploaded to it.
    is_shared = True
    #: Whether the artifact built here replaces the one on the remote.
    is_renewed = False
    #: How a finished folder takes its place.
    publishing = staticmethod(publishing)
    #: How the build ended, for the log.
    outcome = "finished in {:.1f} s"

    def __init__(self, *args: object, **kwargs: object) -> None:
        console.configure()
        console.log_as(Storage().log_format)
        super().__init__(*args, **kwargs)
        self.task_id = of_this_root(self.task_id)
        check_config_file()
        # Made here, and with it the stages below: a bad setting anywhere is refused before any work starts.
        self.settings, self.force = self.make_settings(), Force()
        self.below = luigi.task.flatten(self.requires())
        # The stages that wait for this one: its outcome may show that their settings are impossible.
        self.above: list[Stage] = []
        for task in self.below:
            task.above.append(self)

    def make_settings(self) -> StageSettings:
        """The stage's validated settings."""
        return self.parameters(**self.param_kwargs)

    @abc.abstractmethod
    def upstream(self) -> object:
        """The inputs as plain data, for the identity. It is called when they are known."""

    def label(self) -> str:
        """Name of the artifact for people. The fingerprint follows it in the folder's name."""
        return ""

    @abc.abstractmethod
    def make(self, folder: Path) -> Mapping:
        """Write the artifact into an empty folder. Return details for its manifest.

        With an entry "provisional", a reason, the artifact is not final, and the next run builds it again.
        """

    def still_true(self, manifest: Mapping) -> Sequence[str]:
        """The reasons why an artifact with the present identity is not valid any more, or not final."""
        return [manifest["provisional"]] if manifest.get("provisional") else []

    def unfinished(self) -> str:
        """How far an interrupted build came that will be resumed. Empty if there is none."""
        return ""

    def bytes_needed(self) -> int:
        """The most that building the artifact takes on the disk at one time."""
        return 2_000_000

    def own_modules(self) -> tuple[str, ...]:
        """User modules that the settings name. Their code is part of the identity."""
        return ()

    def shaping_settings(self) -> dict[str, object]:
        """The settings that can change the artifact's bytes."""
        return {name: self.param_kwargs[name] for name, parameter in self.get_params() if parameter.significant}

    def identity(self) -> dict:
        """Everything the artifact is made from."""
        return {
            "schema": IDENTITY_SCHEMA,
            "settings": self.shaping_settings(),
            "upstream": self.upstream(),
            "code": _code_digests(self.entry, self.own_modules()),
            "packages": _package_versions(self.packages),
        }

    def output(self) -> Artifact:
        """The artifact of the present identity."""
        identity = self.identity()
        folder = root_folder() / self.kind / f"{self.label()}-{fingerprint(identity)[:12]}"
        return Artifact(folder, identity, experiment=self.belongs_to())

    def belongs_to(self) -> str:
        """The experiment, by default the requested dataset."""
        return self.below[0].belongs_to()

    def status(self, cache: RemoteCache | None = None) -> Status:
        """State of the artifact here, and whether the remote, or the cache that is given, has it."""
        found, cache = self.local_status(), cache or remote_cache.shared()
        # An unreadable artifact is not replaced.
        if found.state in (State.WAITING, State.FRESH, State.UNREADABLE) or not (cache and self.may_be_fetched()):
            return found
        held = cache.find(self.kind, self.output().expected)
        return replace(found, remote=remote_cache.origin_of(held.manifest)) if held else found

    def local_status(self) -> Status:
        """State of the artifact here, and the reasons."""
        if not all(task.is_known() for task in self.below):
            unknown = next(stage for stage in from_below(self) if not stage.is_known())
            return Status(State.WAITING, (f"for {unknown.task_family}",))
        artifact = self.output()
        found = artifact.status()
        if found.state in (State.NEW, State.STALE) and not self.is_forced() and (resumed := self.unfinished()):
            return Status(found.state, (resumed,))
        # An artifact that this very run has built is final for it.
        if found.state is not State.FRESH or (manifest := artifact.manifest()).get("run_id") == RUN_ID:
            return found
        if self.is_forced():
            return Status(State.STALE, (f"requested by [Force] stage = {self.force.stage}",))
        reasons = self.still_true(manifest)
        return Status(State.STALE, tuple(reasons)) if reasons else found

    def may_be_fetched(self) -> bool:
        """Whether an artifact that another machine made would do."""
        remote = remote_cache.shared()
        return self.is_shared and bool(remote and remote.is_on) and not self.is_forced()

    def is_dispensable(self) -> bool:
        """Whether the artifact need not be here, because what is made from it is here or on the remote."""
        if not self.above or not self.may_be_fetched() or not all(task.status().is_available for task in self.above):
            return False
        # One that is here and not final is built again, as without a remote.
        is_here = self.is_known() and self.output().folder.is_dir()
        return not (is_here and self.local_status().state is State.STALE)

    def is_forced(self) -> bool:
        """Whether the stage is to be rebuilt in this run though nothing has changed."""
        return self.task_family == self.force.stage or any(task.is_forced() for task in self.below)

    def is_known(self) -> bool:
        """Whether the stages above can state their identities without any work being done."""
        return all(task.is_known() for task in self.below)

    def is_final(self) -> bool:
        """Whether the artifact was made here, and neither it nor an input stands in for what was asked for."""
        folders = [task.output().folder for task in from_below(self)]
        return not read_fetched(folders[-1]) and not any(map(remote_cache.stands_in, folders))

    def check(self) -> None:
        """Refuse settings, here or in a stage above, that do not fit the data, as far as these are known."""
        for task in self.above:
            task.check()

    def complete(self) -> bool:
        """Whether neither this stage nor any below it has work to do. If one has, the storage root is locked now.

        Luigi calls this in the process that forks its workers. An error ends it: Luigi would go on after an exception.
        """
        with console.leaving_on_errors():
            is_complete = all(task.complete() for task in self.below)
            if is_complete and (self.status().is_fresh or self.is_dispensable()):
                return True
            self.check()
            lock.hold(root_folder(), on_busy=Storage().on_busy)
        return False

    def run(self) -> None:
        """Build the artifact and publish it, unless one with the same identity is there already."""
        with time_limit(self.task_family, self.time_limit_seconds):
            self.make_if_needed()
        if not self.above:
            end_all()

    def make_if_needed(self, *, is_wanted: bool = False) -> None:
        """Build or download the artifact, unless it is here. A dispensable one only if it ``is_wanted``."""
        artifact, found, remote = self.output(), self.status(), remote_cache.shared()
        if found.is_fresh:
            _logger.info("%s: fresh, reusing %s", self.task_family, artifact.name())
            return
        if found.state is State.UNREADABLE:
            raise UnreadableArtifactError(*found.reasons)
        if self.is_dispensable() and not is_wanted:
            _logger.info("%s: skipped, the stages that use it need no rebuild", self.task_family)
            return
        started = time.perf_counter()
        if found.remote and remote.get(self.kind, artifact.expected, artifact.folder):
            _logger.info("%s: downloaded in %.1f s", self.task_family, time.perf_counter() - started)
            return
        self.fetch_inputs()
        _logger.info("%s: building %s (%s)", self.task_family, artifact.name(), self.local_status())
        self.publish(artifact)
        if remote and Storage().push == "always" and self.is_shared and self.is_final():
            remote.put(self.kind, artifact.folder, replace=self.is_renewed, keep=self.is_forced())

    def fetch_inputs(self) -> None:
        """Fetch the inputs that are on the remote alone."""
        for task in self.below:
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


def from_below(stage: Stage) -> list[Stage]:
    """The stage and all that it is made from, the source first, each once."""
    return list(dict.fromkeys([*(found for below in stage.below for found in from_below(below)), stage]))


def differing(settings: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """Of several sets of settings those that are not equal in all."""
    names = [name for name, value in settings[0].items() if any(one[name] != value for one in settings)]
    return [{name: one[name] for name in names} for one in settings]
