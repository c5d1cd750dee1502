"""Source: gets the dataset through TensorFlow Datasets, or the stand-in where it is unavailable."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.artefacts import layout
from pipeline.artefacts.manifest import read_fetched
from pipeline.config.data import PLACEHOLDER, SourceSettings
from pipeline.errors import SettingsError
from pipeline.sources.source import SOURCES, SYNTHETIC, Location, SourceInfo, dataset_of, kind_of
from pipeline.stage_process import in_child
from tasks.settings import Experiment
from tasks.stage import Stage
from tasks.status import Artefact

# Files that are named where a source of single files has changed.
MAX_REASONS = 5


class Source(Stage, parameters=SourceSettings):
    """Section [Source]; the artifact is a manifest that says what the source holds."""

    kind = layout.SOURCE
    entry = "pipeline.sources"
    # Pillow says which files are images, and makes plain what is not.
    packages = ("pillow", "tensorflow-datasets")
    # The newest look at the dataset counts: its files may have changed since another was shared.
    is_renewed = True

    _known_changes: Mapping[tuple[str, str], tuple[str, ...]] = {}

    def upstream(self) -> object:
        return {"name": self.requested()} if self.settings.has_path and self.origin != PLACEHOLDER else {}

    def own_modules(self) -> tuple[str, ...]:
        return SOURCES.outside_modules(self.dataset)

    def label(self) -> str:
        return self.requested().replace("/", "-")

    def belongs_to(self) -> str:
        return Experiment().name or self.requested()

    def location(self) -> Location:
        """Where the dataset lies on this machine."""
        return kind_of(self.settings).location(self.output().folder)

    def is_of_files(self) -> bool:
        """Whether the examples are single files."""
        return self.settings.of_files and self.origin != PLACEHOLDER

    def requested(self) -> str:
        """What is asked for, by the name that its info has."""
        return dataset_of(self.settings).name()

    def is_known(self) -> bool:
        return self.output().status().is_fresh and not self._changes()

    def still_true(self, manifest: Mapping) -> Sequence[str]:
        return super().still_true(manifest) or self._changes()

    def may_be_fetched(self) -> bool:
        return super().may_be_fetched() and not self.is_at_hand()

    def is_wanted(self) -> bool:
        return True

    def is_at_hand(self) -> bool:
        """Whether the dataset lies on this machine."""
        return kind_of(self.settings).is_at_hand()

    def _changes(self) -> tuple[str, ...]:
        """The changes since the artifact was made; looked for once for each artifact, as all stages ask."""
        folder, manifest = self.output().folder, self.output().manifest()
        # Nothing can be seen of a dataset that is on another machine.
        if read_fetched(folder) and not self.is_at_hand():
            return ()
        key = (manifest["fingerprint"], manifest["created_at"])
        if key not in self._known_changes:
            try:
                found = list(kind_of(self.settings).changed(manifest["source"], folder))
            except SettingsError as error:
                # The stage raises it again, with its exit code.
                found = [str(error)]
            more = (f"and {len(found) - MAX_REASONS:,} more",) if len(found) > MAX_REASONS else ()
            self._known_changes = {key: (*found[:MAX_REASONS], *more)}
        return self._known_changes[key]

    def publish(self, artefact: Artefact) -> None:
        super().publish(artefact)
        self.check()

    def make(self, folder: Path) -> Mapping:
        job = {"settings": self.settings, "folder": folder}
        source = in_child("pipeline.sources:resolve", job, returns=SourceInfo).to_json()
        is_stand_in = self.settings.may_be_replaced and source["origin"] == SYNTHETIC
        again = f"a stand-in was taken for {self.dataset}: the real source is tried again"
        return {"source": source, "provisional": again} if is_stand_in else {"source": source}
