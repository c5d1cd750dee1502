"""The stages Source, which finds or downloads the dataset, and Records, a Beam job that writes sharded TFRecords."""

import logging
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.artifacts import layout
from pipeline.artifacts.manifest import read_fetched
from pipeline.artifacts.publish import remove_artifact
from pipeline.errors import ChangedSourceError, SettingsError, refuse
from pipeline.records.features import chosen_image_size, content_name, stored_form, stored_spec
from pipeline.settings.data import PLACEHOLDER, RecordsSettings, SourceSettings
from pipeline.settings.schema import AUTO
from pipeline.shards import workers
from pipeline.shards.splits import split_sizes
from pipeline.sources.files import INDEX_NAME
from pipeline.sources.source import SOURCES, SYNTHETIC, Location, SourceInfo, dataset_of, kind_of
from pipeline.stage_process import in_child
from tasks.settings import Experiment, Storage
from tasks.stage import MAX_REASONS, Artifact, Stage

if TYPE_CHECKING:
    from pipeline.shards.shared import Store

_logger = logging.getLogger(__name__)


class Source(Stage, parameters=SourceSettings):
    """Section [Source]. The artifact is a manifest that describes the dataset."""

    kind = layout.SOURCE
    entry = "pipeline.sources"
    # Pillow decodes images.
    packages = ("pillow", "pillow-heif", "tensorflow-datasets")
    # Files of the dataset may have changed since another description was pushed.
    is_renewed = True

    _known_changes: Mapping[tuple[str, str], tuple[str, ...]] = {}

    def output(self) -> Artifact:
        return self._artifact

    @cached_property
    def _artifact(self) -> Artifact:
        # All stages ask for it many times, and nothing but the settings decides it.
        return super().output()

    def upstream(self) -> object:
        return {"name": self.requested()} if self._has_files else {}

    def own_modules(self) -> tuple[str, ...]:
        return SOURCES.outside_modules(self.dataset)

    def label(self) -> str:
        return self.requested().replace("/", "-")

    def experiment_name(self) -> str:
        return Experiment().name or self.requested()

    def location(self) -> Location:
        """Paths of the dataset on this machine."""
        return kind_of(self.settings).location(self.output().folder)

    def requested(self) -> str:
        """The name of the requested dataset."""
        return dataset_of(self.settings).name()

    def is_resolved(self) -> bool:
        return self.output().status().is_fresh and not self._changes()

    def still_true(self, manifest: Mapping) -> Sequence[str]:
        return super().still_true(manifest) or self._changes()

    def can_be_fetched(self) -> bool:
        return super().can_be_fetched() and not kind_of(self.settings).is_at_hand()

    def can_skip(self) -> bool:
        return False

    @property
    def _has_files(self) -> bool:
        return self.settings.has_path and self.origin != PLACEHOLDER

    def check_files(self) -> None:
        """Refuse a path without such data, as a run does."""
        if self._has_files:
            kind_of(self.settings).check()

    def _changes(self) -> tuple[str, ...]:
        """The changes since the artifact was made. All stages ask, so the result is cached."""
        kind, folder, manifest = kind_of(self.settings), self.output().folder, self.output().manifest()
        # The dataset of a downloaded artifact may be on another machine.
        if read_fetched(folder) and not kind.is_at_hand():
            return ()
        key = (manifest["fingerprint"], manifest["created_at"])
        if key not in self._known_changes:
            try:
                changes = list(kind.changed(manifest["source"], folder))
            except SettingsError as error:
                # The stage raises it again, with its exit code.
                changes = [str(error)]
            more = (f"and {len(changes) - MAX_REASONS:,} more",) if len(changes) > MAX_REASONS else ()
            self._known_changes = {key: (*changes[:MAX_REASONS], *more)}
        return self._known_changes[key]

    def publish(self, artifact: Artifact) -> None:
        super().publish(artifact)
        self.check()

    def make(self, folder: Path) -> Mapping:
        job = {"settings": self.settings, "folder": folder}
        details = {"source": in_child("pipeline.sources:resolve", job, returns=SourceInfo).to_json()}
        if self.settings.may_be_replaced and details["source"]["origin"] == SYNTHETIC:
            details["provisional"] = f"built from placeholder data, the next run tries {self.dataset} again"
        return details


class Records(Stage, parameters=RecordsSettings):
    """Section [Records]. TensorFlow Datasets can read the artifact too."""

    kind = layout.RECORDS
    entry = workers.ENTRY
    packages = workers.PACKAGES

    def requires(self) -> Source:
        return Source()

    def make_settings(self) -> RecordsSettings:
        settings = super().make_settings()
        if settings.workers_share == "remote" and not Storage().remote:
            refuse("Records", "workers_share", "root, because [Storage] remote is empty", settings.workers_share)
        return settings

    def chosen(self) -> Mapping[str, object]:
        source = self.source() if self.image_size == AUTO else None
        return {"image_size": chosen_image_size(source.features, source.shorter_sides)} if source else {}

    def upstream(self) -> object:
        return self.inputs[0].output().manifest()["source"]

    def own_modules(self) -> tuple[str, ...]:
        return SOURCES.outside_modules(self.upstream()["origin"])

    def label(self) -> str:
        return self.upstream()["dataset"].replace("/", "-")

    def source(self) -> SourceInfo | None:
        """Description of the source, of a text as it is cut. None as long as it is not known."""
        return self._source_info() if self.inputs[0].status().is_fresh else None

    def _source_info(self) -> SourceInfo:
        return SourceInfo.from_json(self.upstream()).cut(self.given)

    def num_examples(self) -> dict[str, int]:
        """Split → number of examples. Empty as long as the source is not known."""
        if not (source := self.source()):
            return {}
        # The files may be on another machine. Their index is in the artifact of the source.
        listing = self.inputs[0].output().folder / INDEX_NAME
        location = Location(listing=str(listing) if listing.exists() else "")
        return split_sizes(source, location, self.validation_share)

    def check(self) -> None:
        source, requested = self.source(), self.inputs[0].settings
        # Image files and a text are read from under the root, which workers that share only the remote do not have.
        is_under_root = (requested.of_files and requested.origin != PLACEHOLDER) or (source and source.is_sequence)
        if self.workers_share == "remote" and is_under_root:
            expected = "root, because only this machine has the files of the dataset"
            refuse("Records", "workers_share", expected, self.workers_share)
        self.num_examples()
        if source:
            stored_form(source.features, self.settings, source.shorter_sides)
        super().check()

    def store(self) -> "Store | None":
        """Storage of a cluster's workers that do not share the root."""
        if self.workers_share == "root":
            return None
        from pipeline.shards.shared import Store

        # The push later finds the files under the key of the records.
        key = f"{self.kind}/{self.output().expected}/files" if self.is_resolved() else ""
        return Store(Storage().remote, Storage().remote_endpoint, key)

    def bytes_needed(self) -> int:
        """The examples, with about a hundred bytes around each, and as many for notes of it."""
        source = self._source_info()
        form = stored_form(source.features, self.settings, source.shorter_sides)
        spec = stored_spec(source.features, form)
        content = spec[content_name(spec)]
        each = content.num_bytes if content.is_fixed else 2 * form.num_bytes(source.bytes_per_example)
        return sum(source.num_examples.values()) * (each + 200)

    def make(self, folder: Path) -> Mapping:
        source, chosen = SourceInfo.from_json(self.upstream()), self.chosen()
        if size := chosen.get("image_size"):
            smallest, median, largest = source.shorter_sides
            reason = f"shorter sides of {smallest} to {largest} pixels, median {median}" if median else "photographs"
            _logger.info("Chose image_size = %s for %s.", size, reason)
        job = {
            "source": source,
            "settings": self.settings,
            "folder": folder,
            "location": self.inputs[0].location(),
            "store": self.store(),
        }
        # On a cluster a late attempt may still write notes. The next run removes them.
        how = {"prefix": ".notes-", "dir": folder.parent, "ignore_cleanup_errors": True}
        with tempfile.TemporaryDirectory(**how) as scratch_folder:
            job["scratch_folder"] = Path(scratch_folder)
            try:
                return {**in_child("pipeline.shards.job:write_records", job), "chosen": chosen}
            except ChangedSourceError:
                # The files changed without a change of size or time. The Source stage must read them again.
                remove_artifact(self.inputs[0].output().folder)
                raise
