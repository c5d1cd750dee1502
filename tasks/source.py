"""Source: gets the dataset through TensorFlow Datasets, or the stand-in where it cannot be had."""

import time
from collections.abc import Mapping
from pathlib import Path

import luigi

from pipeline.config import SourceSettings
from tasks.stage import Stage

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

    def complete(self) -> bool:
        """Whether the source is known; under ``origin = auto`` a stand-in of an earlier process does not count."""
        target = self.output()
        if not target.exists():
            return False
        manifest = target.manifest()
        is_fallback = self.origin == "auto" and manifest["source"]["origin"] == "synthetic"
        return not is_fallback or manifest["attempted_at"] >= _STARTED

    def run(self) -> None:
        """Find out anew: reached only when the source is unknown, or a stand-in was taken earlier."""
        self.publish(self.output())

    def make(self, folder: Path) -> Mapping:
        """Get the dataset; the manifest holds all there is to say."""
        from pipeline import sources

        attempted_at = time.time()
        return {"source": sources.resolve(self.settings).to_json(), "attempted_at": attempted_at}
