"""The request to train: all inputs of one run."""

from dataclasses import dataclass, field
from pathlib import Path

from pipeline.config.training import TrainSettings
from pipeline.runs.initial import InitialWeights
from pipeline.training.process_group import ProcessGroup


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """One run to train.

    Attributes:
        records: the folder of the published records.
        requested_dataset: the dataset that the user asked for. A placeholder may replace it.
        checkpoints: the folder of the run's checkpoints. The run resumes from a checkpoint there.
        started: the value of ``time.perf_counter`` when the stage began. All processes of a machine share this clock.
        experiment: by default it has the name of the dataset.
        drawn: the file of the seeded weights, if another backend drew them.
    """

    records: Path
    settings: TrainSettings
    requested_dataset: str
    fingerprint: str
    checkpoints: Path
    started: float | None = None
    initial: InitialWeights | None = None
    experiment: str = ""
    drawn: Path | None = None
    group: ProcessGroup = field(default_factory=ProcessGroup)
