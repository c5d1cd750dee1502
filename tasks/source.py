"""Source: gets the dataset through TensorFlow Datasets, or the stand-in where it cannot be had."""

import time
from collections.abc import Mapping
from pathlib import Path

import luigi

from pipeline.config import SourceSettings
from tasks.stage import Condition, Stage

# A stand-in is final for the process that took it and for no other: the next one tries the real source again.
_STARTED = time.time()


class Source(Stage):
    """Section [Source]; the artefact is a manifest that says what the source holds."""

    kind = "source"
    entry = "pipeline.sources"
    packages = ("tensorflow-datasets",)

    dataset = luigi.Parameter(default="cifar10", description="TensorFlow Datasets name.")
    origin = luigi.Parameter(default="auto", description="tfds, synthetic, or auto.")
    tfds_data_dir = luigi.Parameter(
        default="", significant=False, description="Prepared TFDS datasets; empty for TFDS_DATA_DIR or TFDS's default."
    )

    def make_settings(self) -> SourceSettings:
        """The stage's validated settings."""
        return SourceSettings(dataset=self.dataset, origin=self.origin, tfds_data_dir=self.tfds_data_dir)

    def shaping_settings(self) -> Mapping[str, object]:
        """Not where the dataset lies: a copy elsewhere is the same dataset."""
        return {"dataset": self.dataset, "origin": self.origin}

    def upstream(self) -> object:
        """Nothing of ours."""
        return {}

    def label(self) -> str:
        """The dataset asked for."""
        return self.dataset.replace("/", "-")

    def condition(self) -> Condition:
        """As any stage's; under ``origin = auto`` a stand-in of an earlier process does not count."""
        condition = super().condition()
        if condition.state != "fresh":
            return condition
        manifest = self.output().manifest()
        is_stand_in = self.origin == "auto" and manifest["source"]["origin"] == "synthetic"
        if is_stand_in and manifest["attempted_at"] < _STARTED:
            return Condition("stale", (f"a stand-in was taken for {self.dataset}: the real source is tried again",))
        return condition

    def is_known(self) -> bool:
        """Whether there is a whole artefact, be it of a stand-in."""
        return super().condition().state == "fresh"

    def make(self, folder: Path) -> Mapping:
        """Get the dataset; the manifest holds all there is to say."""
        from pipeline import sources

        attempted_at = time.time()
        return {"source": sources.resolve(self.settings).to_json(), "attempted_at": attempted_at}
