"""Source: gets the dataset through TensorFlow Datasets, or the stand-in where it cannot be had."""

from collections.abc import Mapping
from pathlib import Path

import luigi

from pipeline.artefacts import layout
from pipeline.config import SourceSettings
from pipeline.sources import Location
from tasks.settings import FloatSetting, time_limit_setting
from tasks.stage import Stage
from tasks.target import ArtefactTarget, Condition


class Source(Stage):
    """Section [Source]; the artefact is a manifest that says what the source holds."""

    kind = layout.SOURCE
    entry = "pipeline.sources"
    packages = ("tensorflow-datasets",)

    dataset = luigi.Parameter(default="cifar10", description="TensorFlow Datasets name.")
    origin = luigi.Parameter(default="auto", description="tfds, synthetic, or auto.")
    test_share = FloatSetting(default=0.2, description="Share of train for test, where the dataset has no test split.")
    # Not what shapes the artefact: a copy elsewhere is the same dataset.
    tfds_data_dir = luigi.Parameter(
        default="", significant=False, description="Prepared TFDS datasets; empty for TFDS_DATA_DIR or TFDS's default."
    )

    time_limit_seconds = time_limit_setting()

    def make_settings(self) -> SourceSettings:
        """The stage's validated settings."""
        return SourceSettings(**self.param_kwargs)

    def upstream(self) -> object:
        """Nothing of ours."""
        return {}

    def label(self) -> str:
        """The dataset asked for."""
        return self.dataset.replace("/", "-")

    def location(self) -> Location:
        """Where the dataset lies on this machine."""
        return Location(tfds_data_dir=self.tfds_data_dir)

    def is_known(self) -> bool:
        """Whether there is a whole artefact, be it of a stand-in."""
        return self.output().exists()

    def condition(self) -> Condition:
        """As any stage; a dataset that was prepared anew since makes it stale."""
        condition = super().condition()
        if condition.state != "fresh":
            return condition
        from pipeline.sources.prepared import changed_copy

        changed = changed_copy(self.output().manifest()["source"], self.tfds_data_dir)
        return Condition("stale", (f"{changed}: has other files than it had",)) if changed else condition

    def publish(self, target: ArtefactTarget) -> None:
        """As any stage; what the dataset is too small for is then refused, before it is written as records."""
        super().publish(target)
        self.check()

    def make(self, folder: Path) -> Mapping:
        """Get the dataset; the manifest holds all there is to say."""
        from pipeline import sources

        source = sources.resolve(self.settings).to_json()
        is_stand_in = self.origin == "auto" and source["origin"] == "synthetic"
        again = f"a stand-in was taken for {self.dataset}: the real source is tried again"
        return {"source": source, "provisional": again} if is_stand_in else {"source": source}
