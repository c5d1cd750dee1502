"""Stage: what the four tasks have in common.

A stage is complete when everything below it is, and its own artefact is valid and was made from the identity asked for
now. Luigi does not look below a task that is complete, so a stage looks itself. When something below was rebuilt with
the same outcome, a stage whose artefact still fits has nothing to do and says so.
"""

import abc
import contextlib
import logging
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import luigi
from luigi.rpc import RPCError

from pipeline import progress
from pipeline.artefacts.fingerprint import IDENTITY_SCHEMA, code_digests, fingerprint, package_versions
from pipeline.artefacts.manifest import write_manifest
from pipeline.artefacts.publish import publishing
from pipeline.config.stage import StageSettings
from pipeline.errors import UnreadableArtefactError
from tasks import sharing
from tasks.parameters import add_parameters, check_config_file
from tasks.process import console, group, lock
from tasks.process.console import RUN_ID
from tasks.process.interrupt import time_limit
from tasks.process.visualiser import Visualiser
from tasks.sections import Force, report_url
from tasks.storage import Storage, of_this_root, root_folder
from tasks.target import ArtefactTarget, Condition

_logger = logging.getLogger(__name__)


class Stage(luigi.Task):
    """One step of the DAG; a subclass says what it is made from and how it is made."""

    #: Folder under the storage root that holds the stage's artefacts.
    kind: str
    #: Module of ``pipeline`` that does the work; its code, and the code it imports, is part of the identity.
    entry: str
    #: Distributions that shape the artefact's bytes.
    packages: tuple[str, ...]
    #: The settings of the stage, which are its parameters.
    parameters: type[StageSettings]
    #: Whether it is had from the remote, and given to it.
    is_shared = True
    #: Whether what is made here takes the place of what the remote has.
    is_renewed = False
    #: How a finished folder takes its place.
    publishing = staticmethod(publishing)

    def __init_subclass__(cls, *, parameters: type[StageSettings], **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls.parameters = parameters
        add_parameters(cls, parameters)

    def __init__(self, *args: object, **kwargs: object) -> None:
        console.configure()
        console.log_as(Storage().log_format)
        super().__init__(*args, **kwargs)
        self.task_id = of_this_root(self.task_id)
        check_config_file()
        # Made here, and with it the stages below: a bad setting anywhere is refused before any work starts.
        self.settings, self.force = self.make_settings(), Force()
        self.below = luigi.task.flatten(self.requires())
        # The stages that wait for this one: what it finds out may be enough to refuse what they are to do.
        self.above: list[Stage] = []
        for task in self.below:
            task.above.append(self)

    def make_settings(self) -> StageSettings:
        """The stage's validated settings."""
        return self.parameters(**self.param_kwargs)

    @abc.abstractmethod
    def upstream(self) -> object:
        """What the artefact is made from, as plain data; only asked when everything below is complete."""

    @abc.abstractmethod
    def label(self) -> str:
        """How the artefact is called for people; the fingerprint follows it in the folder's name."""

    @abc.abstractmethod
    def make(self, folder: Path) -> Mapping:
        """Write the artefact into an empty folder; returns what its manifest says beyond the files.

        An entry "provisional" there says why the artefact is not final: the next run makes it again.
        """

    def shaping_settings(self) -> Mapping[str, object]:
        """The settings that can change the artefact's bytes: those that Luigi calls significant."""
        return {name: self.param_kwargs[name] for name, parameter in self.get_params() if parameter.significant}

    def bytes_needed(self) -> int:
        """The most that making the artefact takes on the disk at one time."""
        return 2_000_000

    def identity(self) -> dict:
        """Everything the artefact is made from."""
        return {
            "schema": IDENTITY_SCHEMA,
            "settings": dict(self.shaping_settings()),
            "upstream": self.upstream(),
            "code": code_digests(self.entry, self.own_modules()),
            "packages": package_versions(self.packages),
        }

    def own_modules(self) -> tuple[str, ...]:
        """Modules of the user's that the settings name: their code is part of the identity as ours is."""
        return ()

    def output(self) -> ArtefactTarget:
        """The artefact of the present identity."""
        identity = self.identity()
        folder = root_folder() / self.kind / f"{self.label()}-{fingerprint(identity)[:12]}"
        return ArtefactTarget(folder, identity, experiment=self.belongs_to())

    def belongs_to(self) -> str:
        """The experiment: by default it is called as the dataset asked for is."""
        return self.below[0].belongs_to()

    def folders(self) -> list[Path]:
        """Every folder under the storage root that belongs to the present settings."""
        return [self.output().folder]

    def condition(self) -> Condition:
        """How the stage's own artefact stands, and why it must be made if it must."""
        if not all(task.is_known() for task in self.below):
            return Condition("pending", ("what it is made from is not known before the stages above are done",))
        condition = self.local_condition()
        # What may not be read stays as it is.
        if condition.state in ("fresh", "unreadable") or not self.may_be_fetched():
            return condition
        held = sharing.found(self.kind, self.output().expected)
        return Condition("remote", (sharing.made(held.manifest),)) if held else condition

    def local_condition(self) -> Condition:
        """The same of the storage root alone, once what is below is known."""
        target = self.output()
        condition = target.condition()
        # What this very run has made is final for it.
        if condition.state != "fresh" or (manifest := target.manifest()).get("run_id") == RUN_ID:
            return condition
        if self.is_forced():
            return Condition("stale", (f"asked for by [Force] stage = {self.force.stage}",))
        if reason := self.why_again(manifest):
            return Condition("stale", (reason,))
        return condition

    def may_be_fetched(self) -> bool:
        """Whether an artefact that another machine made would do."""
        return self.is_shared and sharing.is_on() and not self.is_forced()

    def is_wanted(self) -> bool:
        """Whether the artefact is needed here, and not only what is made from it."""
        return not self.above or any(task.condition().state not in ("fresh", "remote") for task in self.above)

    def is_dispensable(self) -> bool:
        """Whether, as there is a remote, the artefact need not be here: nobody needs more than what is made from it.

        One that is here and not final is asked for again as without a remote: what stands in must not stay for good.
        """
        return self.may_be_fetched() and not self.is_wanted() and not self._is_here_for_now()

    def _is_here_for_now(self) -> bool:
        return self.is_known() and self.output().folder.is_dir() and self.local_condition().state == "stale"

    def why_again(self, manifest: Mapping) -> str:
        """Why an artefact of the present identity is not final; "" where it is."""
        return manifest.get("provisional", "")

    def is_forced(self) -> bool:
        """Whether the stage is to be rebuilt in this run though nothing has changed."""
        return self.task_family == self.force.stage or any(task.is_forced() for task in self.below)

    def is_known(self) -> bool:
        """Whether the identity of the stage's artefact can be told without doing any work."""
        return all(task.is_known() for task in self.below)

    def check(self) -> None:
        """Refuse what is known by now to be impossible, here or in a stage above.

        Asked before any stage runs, and again once the source is there.

        Raises:
            SettingsError: the settings do not fit the data.
        """
        for task in self.above:
            task.check()

    def complete(self) -> bool:
        """Whether neither this stage nor any below it has work to do; where it has, the storage root is ours now.

        Luigi asks this in the process that forks its workers, before the first of them starts.

        Raises:
            SystemExit: the root is unavailable, or the settings do not fit the data, with the error's exit code. Luigi
                would go on after an exception.
        """
        with console.leaving_on_errors():
            is_complete = all(task.complete() for task in self.below)
            if is_complete and (self.condition().state == "fresh" or self.is_dispensable()):
                return True
            self.check()
            lock.hold(root_folder(), on_busy=Storage().on_busy)
        return False

    def run(self) -> None:
        """Make the artefact and publish it, unless one made from the same identity is there already.

        Raises:
            UnreadableArtefactError: there is one, but this user may not read it.
        """
        with time_limit(self.task_family, self.time_limit_seconds):
            self.make_if_needed()
        if not self.above:
            group.part()

    def make_if_needed(self, *, is_wanted: bool = False) -> None:
        """Make the artefact, or fetch it, unless one of the same identity is there.

        What is dispensable is left, unless ``is_wanted``.

        Raises:
            UnreadableArtefactError: there is one, but this user may not read it.
        """
        target, condition = self.output(), self.condition()
        if condition.state == "fresh":
            _logger.info("%s: unchanged, reusing %s", self.task_family, target)
            return
        if condition.state == "unreadable":
            raise UnreadableArtefactError(*condition.reasons)
        if self.set_tracking_url:
            with contextlib.suppress(RPCError):
                self.set_tracking_url(report_url())
        with progress.heard_by(Visualiser(self)):
            if self.is_dispensable() and not is_wanted:
                _logger.info("%s: not needed here", self.task_family)
            elif condition.state != "remote" or not sharing.fetch(self.kind, target):
                self._make(target)

    def _make(self, target: ArtefactTarget) -> None:
        self.have_below()
        _logger.info("%s: %s, making %s", self.task_family, self.local_condition(), target)
        self.publish(target)
        if self.is_shared and not self.stands_in():
            sharing.push(self.kind, target, replace=self.is_renewed, keep=self.is_forced())

    def stands_in(self) -> bool:
        """Whether the artefact here, or what it is made from, stands in for what was asked for: that is not shared."""
        return sharing.stands_in(self.output().folder) or any(task.stands_in() for task in self.below)

    def have_below(self) -> None:
        """Have here what this is made from: it may lie on the remote alone, as long as this is to come from there."""
        for task in self.below:
            if task.condition().state != "fresh":
                task.make_if_needed(is_wanted=True)

    def publish(self, target: ArtefactTarget) -> None:
        """Make the artefact and let it take its place, whole or not at all."""
        started = time.perf_counter()
        with self.publishing(target.folder, bytes_needed=self.bytes_needed()) as temporary:
            details = self.make(temporary)
            seconds = round(time.perf_counter() - started, 3)
            details = {
                **details,
                "experiment": target.experiment,
                "run_id": RUN_ID,
                "host": socket.gethostname(),
                "seconds": seconds,
            }
            write_manifest(temporary, stage=self.task_family, identity=target.identity, details=details)
        _logger.info("%s: %s", self.task_family, self.outcome(time.perf_counter() - started))

    def outcome(self, seconds: float) -> str:
        """How the making of the artefact ended, for people."""
        return f"done in {seconds:.1f} s"
