"""The Source stage, which finds or downloads the dataset, or uses a placeholder."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.artifacts import layout
from pipeline.artifacts.manifest import read_fetched
from pipeline.errors import SettingsError
from pipeline.settings.data import PLACEHOLDER, SourceSettings
from pipeline.sources.source import SOURCES, SYNTHETIC, Location, SourceInfo, dataset_of, kind_of
from pipeline.stage_process import in_child
from tasks.settings import Experiment
from tasks.stage import Stage
from tasks.status import MAX_REASONS, Artifact


class Source(Stage, parameters=SourceSettings):
    """Section [Source]. The artifact is a manifest that describes the dataset."""

    kind = layout.SOURCE
    entry = "pipeline.sources"
    # Pillow decodes images.
    packages = ("pillow", "pillow-heif", "tensorflow-datasets")
    # Files of the dataset may have changed since another description was pushed.
    is_renewed = True

    _known_changes: Mapping[tuple[str, str], tuple[str, ...]] = {}

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
        source = in_child("pipeline.sources:resolve", job, returns=SourceInfo).to_json()
        if self.settings.may_be_replaced and source["origin"] == SYNTHETIC:
            reason = f"built from placeholder data, the next run tries {self.dataset} again"
            return {"source": source, "provisional": reason}
        return {"source": source}
