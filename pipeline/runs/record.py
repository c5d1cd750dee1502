"""Record: the one schema of a run, ``run.json`` (… → training → **run** → report).

Training writes it; report, history, diff, MLflow, TensorBoard and Prometheus read it. What a field is stands beside it,
in its annotation: to which part of a run it belongs, whether two runs must share it to be compared, since which version
of the schema there is such a field. Who reads asks ``names`` for the fields of some parts and keeps no list of its own,
so that a setting added here is recorded, compared, tracked and shown without another edit.

A record may come from another machine or an earlier version: it is untrusted data. A field that an earlier version did
not have has a default, which is what that version did.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from pipeline.hardware.flags import computation_flags
from pipeline.runs.untrusted import Count, Figure, Object, Untrusted, checked, read_text

RECORD_NAME = "run.json"

#: 1: records without the field. 2: `segments`, `cache`, `replicas` and what else is marked; figures are never NaN.
#: 3: `augment`, `keep`, `kept_epoch`, what overrides a recipe, networks that give logits, initial weights, and what
#: else is marked. 4: `records`, `experiment`, `problem`. 5: `requested_backend`, `backend`. 6: `processes`.
#: 7: `test_time_augmentation` and its figures, `adapted_examples`. 8: `deterministic`. 9: `input_shape`. 10: `tokens`.
#: 11: `computation_flags`.
SCHEMA_VERSION = 11

FINISHED, SKIPPED = "finished", "skipped"

#: identity: which run it is; setting: what was asked for; data: what it was trained on; hardware: what it was trained
#: with; computation: how, where the settings leave it open; evidence: what shows that this is so; measured: what came
#: of it.
Part = Literal["identity", "setting", "data", "hardware", "computation", "evidence", "measured"]


@dataclass(frozen=True, kw_only=True)
class About:
    """What a field of the record is.

    Attributes:
        part: of a run.
        compared: runs that differ in it are not compared: its figures answer another question.
        repeated: it differs between runs that repeat one another, which are shown as one row.
        since: the version of the schema that brought it.
    """

    part: Part
    compared: bool = False
    repeated: bool = False
    since: int = 1


_IDENTITY = About(part="identity", repeated=True)
_SETTING = About(part="setting")
_COMPARED_SETTING = About(part="setting", compared=True)
_SETTING_OF_3 = About(part="setting", compared=True, since=3)
_DATA = About(part="data")
_HARDWARE = About(part="hardware")
_COMPUTATION = About(part="computation")
_EVIDENCE = About(part="evidence", repeated=True)
_MEASURED = About(part="measured", repeated=True)


def _in_utc(value: str) -> str:
    try:
        if datetime.fromisoformat(value).utcoffset() != timedelta(0):
            raise ValueError("not UTC")
    except ValueError as error:
        raise ValueError(f"expected an ISO 8601 date in UTC ({error})") from error
    return value


def _called_as_the_dataset(fields: Mapping[str, Any]) -> str:
    # The first lines of the history left out what was requested.
    return fields["requested_dataset"] or fields["dataset"]


class Mismatch(Untrusted):
    """Why the requested device was not used."""

    device: str | None = None
    cause: str
    remedy: str
    error: str


#: The parts of the stage's time, each ``…_seconds`` in the breakdown: imports, devices, receipt and network; checking
#: and reading the records; fit, compilation included; evaluation; saving and restoring checkpoints; saving the rest;
#: timing a step alone; the profiler.
STAGE_PARTS = ("startup", "loading", "training", "evaluation", "checkpoint", "saving", "measuring", "profiling")


class TimeBreakdown(Untrusted):
    """Where the time went, in seconds; see training/breakdown.py.

    Those of the stage's parts, from ``startup_seconds`` on, add up to its wall time, over all processes that trained
    the run; records of version 1 have two of them.
    """

    step_seconds: Figure
    # Floating-point operations of it, by the graph that computes it; None where that is not known.
    step_flops: Figure = None
    # Of memory that it reads and writes, as XLA compiled it for one device.
    step_bytes: Figure = None
    step_alone_seconds: Figure
    input_alone_seconds: Figure
    input_wait_share: Figure
    not_measured: str | None = None
    compilation_seconds: Figure
    startup_seconds: Figure = None
    loading_seconds: Figure = None
    training_seconds: Figure = None
    evaluation_seconds: Figure
    checkpoint_seconds: Figure
    saving_seconds: Figure = None
    measuring_seconds: Figure = None
    profiling_seconds: Figure = None


class Segment(Untrusted):
    """The epochs, counted from 1, that one process trained of a run, and the evidence of what it trained them on."""

    first_epoch: Count
    last_epoch: Count
    hostname: str | None
    device_verified: bool
    receipt: Object | None


class Beginning(Untrusted):
    """What training began with: the layers that took initial weights, those that did not with why, the frozen ones.

    ``adapted_examples``: of train, from which the network took what it does not learn, see ``adapted_by``.
    """

    taken: Annotated[tuple[str, ...], Field(strict=False)] = ()
    left: dict[str, str] = {}
    frozen: Annotated[tuple[str, ...], Field(strict=False)] = ()
    adapted_examples: Count = 0


class StoredRecords(Untrusted):
    """The records it was trained on: how they hold images, see records/form.py, and the bytes of all splits on disk.

    ``skipped``: files of the source that are left out, by reason.
    """

    encoding: str
    image_size: Count
    resize: str
    num_examples: Count
    total_bytes: Count
    skipped: dict[str, Count] = {}

    @classmethod
    def of_manifest(cls, manifest: Mapping[str, Any]) -> "StoredRecords | None":
        """As the records' manifest has it; None of a text, which is stored in one way."""
        if not (image := manifest.get("image")):
            return None
        return cls(
            encoding=image["encoding"],
            image_size=image["size"],
            resize=image["resize"],
            num_examples=sum(split["num_examples"] for split in manifest["splits"].values()),
            total_bytes=sum(entry["bytes"] for entry in manifest["files"] if "split" in entry),
            skipped=manifest["source"]["skipped"],
        )


class RunRecord(Untrusted):
    """One run; seconds are wall-clock, accuracies are fractions from 0 to 1, losses of texts nats a prediction.

    Examples, of rates and of the test split, are what the problem counts: images, or the characters of a text.

    ``val_accuracy`` and ``val_loss`` are those of the test split, under Keras's names for them, which records have had
    from the first. ``validation_accuracy`` and ``validation_loss`` are those of the validation split, a part of train
    that was held out, where the records have one.
    """

    schema_version: Annotated[Count, About(part="identity", since=2)] = 1
    fingerprint: Annotated[str, _IDENTITY]
    status: Annotated[Literal["finished", "skipped"], About(part="identity")] = FINISHED
    finished_at: Annotated[str, AfterValidator(_in_utc), _IDENTITY]
    # Of the last process that trained it, as are the receipt and what was seen of the hardware.
    hostname: Annotated[str | None, _IDENTITY]
    # Where no epoch was left to train: who evaluated and saved it.
    finished_on: Annotated[str | None, About(part="identity", repeated=True, since=2)] = None

    model: Annotated[str, _COMPARED_SETTING]
    recipe: Annotated[str, _COMPARED_SETTING]
    # As it was given; what lies there is compared by its digest.
    initial_weights: Annotated[str, About(part="setting", repeated=True, since=3)] = ""
    freeze: Annotated[str, _SETTING_OF_3] = ""
    epochs: Annotated[Count, _COMPARED_SETTING]
    global_batch_size: Annotated[Count, _COMPARED_SETTING]
    scale_learning_rate: Annotated[str, _COMPARED_SETTING] = "none"
    augment: Annotated[str, About(part="setting", compared=True, since=3)] = ""
    keep: Annotated[str, About(part="setting", compared=True, since=3)] = "last"
    patience: Annotated[Count, About(part="setting", compared=True, since=3)] = 0
    # Its figure stands beside the plain one, which it does not change.
    test_time_augmentation: Annotated[str, About(part="setting", since=7)] = "none"
    deterministic: Annotated[str, About(part="setting", since=8)] = "false"
    # -1: the recipe's own.
    learning_rate: Annotated[float, _SETTING_OF_3] = -1.0
    weight_decay: Annotated[float, _SETTING_OF_3] = -1.0
    label_smoothing: Annotated[float, _SETTING_OF_3] = -1.0
    seed: Annotated[Count, About(part="setting", repeated=True)]
    requested_backend: Annotated[str, About(part="setting", since=5)] = "auto"
    requested_device: Annotated[str, _SETTING]
    # Once the device was there it has changed nothing.
    on_mismatch: Annotated[str, About(part="setting", repeated=True)] = "fail"
    replicas: Annotated[Count, _COMPARED_SETTING] = 1
    processes: Annotated[Count, About(part="setting", since=6)] = 1
    requested_precision: Annotated[str, _SETTING]
    requested_jit_compile: Annotated[bool | str | None, _COMPARED_SETTING]
    cache: Annotated[str, About(part="setting", compared=True, since=2)] = "auto"

    # What was learned, by the name of the problem.
    problem: Annotated[str, About(part="data", compared=True, since=4)] = "image_classification"
    # BYTES of a text of more characters than fit: a byte has fewer nats than a character.
    tokens: Annotated[Literal["", "bytes"], About(part="data", compared=True, since=10)] = ""
    requested_dataset: Annotated[str, _DATA]
    dataset: Annotated[str, _DATA]
    dataset_verified: Annotated[bool, _DATA]
    # What it belongs to: a label that is in no fingerprint, but figures of two experiments answer two questions.
    experiment: Annotated[
        str, Field(default_factory=_called_as_the_dataset), About(part="identity", compared=True, since=4)
    ]
    content_digests: Annotated[dict[str, str] | None, About(part="data", compared=True)] = None
    records_fingerprint: Annotated[str | None, _DATA] = None
    records: Annotated[StoredRecords | None, About(part="data", since=4)] = None
    # Of one example: height, width and channels of an image, or the characters of a sequence.
    input_shape: Annotated[tuple[Count, ...] | None, Field(strict=False), About(part="data", since=9)] = None
    initial_weights_digest: Annotated[str, About(part="data", compared=True, since=3)] = ""
    # Fingerprint of the run that left them, where that is known.
    initial_run: Annotated[str | None, About(part="data", since=3)] = None
    # The fewer there are, the less an accuracy says.
    test_examples: Annotated[Count | None, About(part="data", since=2)] = None

    # What computes: the same on other hardware, to the rounding of sums.
    backend: Annotated[str, About(part="hardware", since=5)] = "tensorflow"
    effective_device: Annotated[str, _HARDWARE]
    device_name: Annotated[str | None, _HARDWARE]
    num_replicas: Annotated[Count, _HARDWARE]
    granted_cores: Annotated[Count | None, About(part="hardware", since=2)] = None
    # Rounded: what the kernel keeps for itself differs from start to start of one machine.
    granted_memory_gib: Annotated[Count | None, About(part="hardware", since=2)] = None

    precision: Annotated[str, About(part="computation", compared=True)]
    jit_compile: Annotated[bool, _COMPUTATION]
    steps_per_epoch: Annotated[Count | None, _COMPUTATION] = None
    steps_per_execution: Annotated[Count | None, _COMPUTATION] = None
    # What the network gives; figures are those of probabilities in either case.
    outputs: Annotated[Literal["probabilities", "logits"], About(part="computation", since=3)] = "probabilities"
    input_in_memory: Annotated[bool | None, _COMPUTATION] = None
    # Environment variables that change what is computed or how fast. Of an earlier version they are those of the
    # receipt; lines of the history, which have none, count as without.
    computation_flags: Annotated[dict[str, str], About(part="computation", compared=True, since=11)] = {}

    device_verified: Annotated[bool, About(part="evidence")]
    device_reason: Annotated[str | None, About(part="evidence", repeated=True, since=2)] = None
    mismatch: Annotated[Mismatch | None, _EVIDENCE] = None
    receipt: Annotated[Object | None, _EVIDENCE] = None
    segments: Annotated[tuple[Segment, ...], Field(strict=False), About(part="evidence", repeated=True, since=2)] = ()

    beginning: Annotated[Beginning | None, About(part="evidence", repeated=True, since=3)] = None

    train_seconds: Annotated[Figure, _MEASURED]
    first_epoch_seconds: Annotated[Figure, _MEASURED]
    evaluation_seconds: Annotated[Figure, _MEASURED] = None
    examples_per_second: Annotated[Figure, _MEASURED]
    val_accuracy: Annotated[Figure, _MEASURED]
    val_loss: Annotated[Figure, _MEASURED]
    validation_accuracy: Annotated[Figure, About(part="measured", repeated=True, since=2)] = None
    validation_loss: Annotated[Figure, About(part="measured", repeated=True, since=2)] = None
    # The same of the mean over several views of each image, where test_time_augmentation asks for them.
    val_tta_accuracy: Annotated[Figure, About(part="measured", repeated=True, since=7)] = None
    validation_tta_accuracy: Annotated[Figure, About(part="measured", repeated=True, since=7)] = None
    # The epoch, from 1, whose weights and figures these are, and why training ended: see training/selection.py.
    kept_epoch: Annotated[Count | None, About(part="measured", repeated=True, since=3)] = None
    ended: Annotated[Literal["epochs", "patience"] | None, About(part="measured", repeated=True, since=3)] = None
    epochs_restored: Annotated[Count, _MEASURED] = 0
    reference_flops_per_second: Annotated[Figure, About(part="measured", repeated=True, since=2)] = None
    peak_host_bytes: Annotated[Count | None, _MEASURED] = None
    peak_device_bytes: Annotated[Count | None, _MEASURED] = None
    time_breakdown: Annotated[TimeBreakdown | None, _MEASURED] = None

    @model_validator(mode="before")
    @classmethod
    def _from_earlier_versions(cls, values: Any) -> Any:
        """Fill from the receipt what earlier versions recorded nowhere else."""
        receipt = values.get("receipt") if isinstance(values, dict) else None
        if not isinstance(receipt, dict):
            return values
        if isinstance(flags := receipt.get("flags"), dict) and values.get("schema_version", 1) < 11:
            values = {"computation_flags": computation_flags(flags), **values}
        return {**seen_in(receipt), **values} if values.get("schema_version", 1) == 1 else values

    @model_validator(mode="after")
    def _a_skipped_run_has_no_figures(self) -> "RunRecord":
        if self.status == FINISHED:
            return self
        if self.mismatch is None:
            raise ValueError(f'"mismatch": expected why the run was {SKIPPED}, found null')
        for name in ("train_seconds", "first_epoch_seconds", "examples_per_second", "val_accuracy", "val_loss"):
            if getattr(self, name) is not None:
                raise ValueError(f'"{name}": expected null in a run that was {SKIPPED}, found {getattr(self, name)!r}')
        return self


# What is recorded of a setting under another name: it was requested, beside what was effective.
_REQUESTED = {name: f"requested_{name}" for name in ("backend", "device", "precision", "jit_compile")}


def recorded_settings(settings: object) -> dict[str, Any]:
    """The fields of the record that repeat a run's settings, from an object with an attribute for each."""
    recorded = names("setting")
    asked_for = {recorded_name: name for name, recorded_name in _REQUESTED.items()}
    return {name: getattr(settings, asked_for.get(name, name)) for name in recorded}


def names(*parts: Part, compared: bool | None = None, repeated: bool | None = None) -> tuple[str, ...]:
    """Names of the record's fields, in its order, of these parts (all if none is named) and with these properties."""
    return tuple(
        name
        for name, about in _abouts().items()
        if (not parts or about.part in parts)
        and compared in (None, about.compared)
        and repeated in (None, about.repeated)
    )


def about(name: str) -> About:
    """What a field of the record is."""
    return _abouts()[name]


def is_stand_in(run: Mapping[str, Any]) -> bool:
    """Whether generated examples took the place of the dataset asked for, which the oldest records do not say."""
    return run.get("dataset") == "synthetic" and run.get("requested_dataset", "synthetic") != "synthetic"


def seen_in(receipt: Mapping[str, Any]) -> dict[str, Any]:
    """What a receipt says of the host: cores and memory granted, and its speed by the probe; what it lacks is None."""
    host, probe = (part if isinstance(part := receipt.get(name), Mapping) else {} for name in ("host", "probe"))
    memory = host.get("granted_memory_bytes")
    return {
        "granted_cores": host.get("granted_cores"),
        "granted_memory_gib": round(memory / 2**30) if isinstance(memory, int) and 0 <= memory < 2**63 else None,
        # Of the two operations the one that is most of the work of a convolutional network.
        "reference_flops_per_second": probe.get("convolution_flops_per_second"),
    }


def read_record(folder: Path) -> RunRecord:
    """The record of a run's folder, of this version of the schema or an earlier one.

    Raises:
        DamagedArtefactError: it is missing or not a record; names file and field.
    """
    path = folder / RECORD_NAME
    return checked(RunRecord, read_text(path), path)


def write_record(folder: Path, record: RunRecord) -> None:
    """Write the record into a run's folder, one JSON object without NaN or infinities."""
    (folder / RECORD_NAME).write_text(record.model_dump_json(indent=1) + "\n", encoding="utf-8")


def _abouts() -> dict[str, About]:
    # Asked of the class at each call: a schema with a field more is then seen by all who ask.
    return {
        name: next(one for one in field.metadata if isinstance(one, About))
        for name, field in RunRecord.model_fields.items()
    }
