"""What every part is given: the prepared dataset, records of it, and a folder to work in."""

from dataclasses import dataclass
from pathlib import Path

from pipeline.artifacts.manifest import read_manifest, write_manifest
from pipeline.problems.problem import open_split
from pipeline.settings.data import RecordsSettings, SourceSettings
from pipeline.shards.job import write_records
from pipeline.sources import Location, SourceInfo, resolve
from pipeline.streams.tf_data import Split

SPLITS = ("train", "test")


@dataclass(frozen=True)
class Bench:
    """``source`` is the prepared CIFAR-10, ``folder`` is empty and removed afterwards."""

    folder: Path
    rounds: int
    source: SourceInfo
    tfds_data_dir: str

    @property
    def records_folder(self) -> Path:
        """Records of the source, with their manifest."""
        return self.folder / "records"

    @property
    def manifest(self) -> dict:
        """The records' manifest."""
        return read_manifest(self.records_folder)

    @property
    def num_examples(self) -> int:
        """Of both splits together."""
        return sum(self.source.num_examples.values())

    def split(self, name: str) -> Split:
        """A split of the records."""
        return open_split(self.records_folder, self.manifest, name)


def prepare(folder: Path, rounds: int) -> Bench:
    """Find the prepared dataset and write its records.

    Raises:
        DatasetUnavailableError: it is not prepared and cannot be downloaded; nothing is measured on a stand-in.
    """
    settings = SourceSettings(dataset="cifar10", origin="tfds")
    bench = Bench(folder, rounds, resolve(settings, folder), settings.tfds_data_dir)
    write_to(bench, bench.records_folder)
    return bench


def write_to(bench: Bench, folder: Path, source: SourceInfo | None = None) -> None:
    """What the Records stage does, into a new folder."""
    folder.mkdir()
    notes = folder.with_name(f"{folder.name}-notes")
    notes.mkdir()
    location = Location(tfds_data_dir=bench.tfds_data_dir)
    details = write_records(source or bench.source, RecordsSettings(), folder, notes, location=location)
    write_manifest(folder, stage="Records", identity={"benchmark": True}, details=details)
