"""Records: the Beam job that serializes every split of the source into sharded TFRecords."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import luigi

from pipeline.config import RecordsSettings
from tasks import console
from tasks.settings import IntSetting
from tasks.source import Source
from tasks.stage import Stage


class Records(Stage):
    """Section [Records]; the artefact is a folder that TensorFlow Datasets can read."""

    kind = "records"
    entry = "pipeline.shards"
    packages = ("apache-beam", "numpy", "protobuf", "tensorflow", "tensorflow-datasets")

    train_shards = IntSetting(default=16, description="TFRecord files of the train split.")
    test_shards = IntSetting(default=4, description="TFRecord files of the test split.")
    seed = IntSetting(default=0, description="Seed of the order within and across shards.")
    runner = luigi.Parameter(default="FnApiRunner", significant=False, description="Beam runner.")
    runner_options = luigi.Parameter(default="", significant=False, description="Flags passed on to Beam.")

    def requires(self) -> Source:
        """The source to serialize."""
        return Source()

    def make_settings(self) -> RecordsSettings:
        """The stage's validated settings."""
        return RecordsSettings(**self.param_kwargs)

    def shaping_settings(self) -> Mapping[str, object]:
        """Not the runner: any runner with any number of workers writes the same bytes."""
        return {"train_shards": self.train_shards, "test_shards": self.test_shards, "seed": self.seed}

    def upstream(self) -> object:
        """What the source holds, not how it was come by."""
        return self.requires().output().manifest()["source"]

    def label(self) -> str:
        """The dataset that was had."""
        return self.upstream()["dataset"].replace("/", "-")

    def make(self, folder: Path) -> Mapping:
        """Run the Beam job; decoded pixels are spilled beside the records and go with the job."""
        with console.quiet_imports():
            from pipeline import shards
            from pipeline.sources import SourceInfo

        with tempfile.TemporaryDirectory(prefix=".spill-", dir=folder.parent) as spill_folder:
            return shards.write_records(
                SourceInfo.from_json(self.upstream()),
                self.settings,
                folder,
                Path(spill_folder),
                tfds_data_dir=self.requires().tfds_data_dir,
            )
