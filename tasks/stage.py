"""Stage: what the four tasks have in common.

A stage is complete when everything below it is, and its own artefact is valid and was made from the identity asked for
now. Luigi does not look below a task that is complete, so a stage looks itself. When something below was rebuilt with
the same outcome, a stage whose artefact still fits has nothing to do and says so.
"""

import abc
import logging
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import luigi

from pipeline.errors import DamagedArtefactError
from pipeline.fingerprint import code_digests, fingerprint, package_versions
from pipeline.manifest import check_sizes, publishing, read_manifest, write_manifest
from tasks import console
from tasks.settings import check_config_file
from tasks.storage import root_folder

_logger = logging.getLogger(__name__)


class ArtefactTarget(luigi.Target):
    """A folder with a valid manifest whose fingerprint is the one asked for."""

    def __init__(self, folder: Path, expected: str, *, shared: bool = False) -> None:
        """``shared``: other files may lie beside the artefact's own."""
        self.folder = folder
        self.expected = expected
        self.shared = shared

    def exists(self) -> bool:
        """Whether the artefact is there, whole, and made from what was asked for; says so when it is damaged."""
        if not self.folder.is_dir():
            return False
        try:
            manifest = read_manifest(self.folder)
            check_sizes(self.folder, manifest, shared=self.shared)
        except DamagedArtefactError as error:
            _warn_once(f"damaged: {error}")
            return False
        return manifest["fingerprint"] == self.expected

    def manifest(self) -> dict:
        """The artefact's manifest."""
        return read_manifest(self.folder)

    def __str__(self) -> str:
        return str(self.folder)


class Stage(luigi.Task):
    """One step of the DAG; a subclass says what it is made from and how it is made."""

    #: Folder under the storage root that holds the stage's artefacts.
    kind: str
    #: Module of ``pipeline`` that does the work; its code, and the code it imports, is part of the identity.
    entry: str
    #: Distributions that shape the artefact's bytes.
    packages: tuple[str, ...]
    #: How a finished folder takes its place.
    publishing = staticmethod(publishing)

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        console.configure()
        check_config_file()
        # Made here, and with it the stages below: a bad setting anywhere is refused before any work starts.
        self.settings = self.make_settings()
        self.below = luigi.task.flatten(self.requires())

    @abc.abstractmethod
    def make_settings(self) -> object:
        """The stage's validated settings."""

    @abc.abstractmethod
    def shaping_settings(self) -> Mapping[str, object]:
        """The settings that can change the artefact's bytes."""

    @abc.abstractmethod
    def upstream(self) -> object:
        """What the artefact is made from, as plain data; only asked when everything below is complete."""

    @abc.abstractmethod
    def label(self) -> str:
        """How the artefact is called for people; the fingerprint follows it in the folder's name."""

    @abc.abstractmethod
    def make(self, folder: Path) -> Mapping:
        """Write the artefact into an empty folder; returns what its manifest says beyond the files."""

    def identity(self) -> dict:
        """Everything the artefact is made from."""
        return {
            "settings": dict(self.shaping_settings()),
            "upstream": self.upstream(),
            "code": code_digests(self.entry),
            "packages": package_versions(self.packages),
        }

    def output(self) -> ArtefactTarget:
        """The artefact of the present identity."""
        expected = fingerprint(self.identity())
        return ArtefactTarget(root_folder() / self.kind / f"{self.label()}-{expected[:12]}", expected)

    def complete(self) -> bool:
        """Whether neither this stage nor any below it has work to do."""
        return all(task.complete() for task in self.below) and self.output().exists()

    def run(self) -> None:
        """Make the artefact and publish it, unless one made from the same identity is there already."""
        target = self.output()
        if target.exists():
            _logger.info("%s: unchanged, reusing %s", self.task_family, target)
        else:
            self.publish(target)

    def publish(self, target: ArtefactTarget) -> None:
        """Make the artefact and let it take its place, whole or not at all."""
        _logger.info("%s: making %s", self.task_family, target)
        started = time.perf_counter()
        with self.publishing(target.folder) as temporary:
            details = {**self.make(temporary), "seconds": round(time.perf_counter() - started, 3)}
            write_manifest(temporary, stage=self.task_family, identity=self.identity(), details=details)
        _logger.info("%s: done in %.1f s", self.task_family, time.perf_counter() - started)


@cache
def _warn_once(message: str) -> None:
    """Luigi asks a task more than once whether it is complete; its answer is news only the first time."""
    _logger.warning("%s", message)
