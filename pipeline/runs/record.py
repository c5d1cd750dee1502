"""Schema of a run, ``run.json``, with its origin.

The annotation of a field states its group, and whether comparable runs must share it. Report, history, diff, MLflow,
TensorBoard and Prometheus select fields by ``names`` and have no separate lists. A record is untrusted data. The
default of a later field is the behavior of earlier versions.
"""

import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from pipeline.hardware.runtime import computation_flags
from pipeline.runs.validation import Count, Number, Object, Untrusted, checked, read_text, renamed

RECORD_NAME = "run.json"

#: Version 1 lacks this field. Version 2 excludes NaN. Version 12 renamed fields. The other versions added fields.
SCHEMA_VERSION = 16

FINISHED, SKIPPED = "finished", "skipped"
_GIT_SECONDS = 10

#: Groups of fields. "computation" has choices that the settings leave open, "evidence" proves data and hardware.
FieldGroup = Literal["identity", "setting", "data", "hardware", "computation", "evidence", "measured"]


@dataclass(frozen=True)
class About:
    """The group of a field. Runs that differ in a ``compared`` field are not compared.

    A ``repeated`` field may differ between runs that repeat each other and share a row.
    """

    group: FieldGroup
    compared: bool = False
    repeated: bool = False


def _in_utc(value: str) -> str:
    try:
        if datetime.fromisoformat(value).utcoffset() != timedelta(0):
            raise ValueError("not UTC")
    except ValueError as error:
        raise ValueError(f"expected an ISO 8601 date in UTC ({error})") from error
    return value


class Mismatch(Untrusted):
    """The reason why the requested device was not used."""

    device: str | None = None
    cause: str
    remedy: str
    error: str


_MEASURED = About("measured", repeated=True)

#: Phases of the stage, each ``…_seconds`` in the breakdown.
STAGE_PHASES = ("startup", "loading", "training", "evaluation", "checkpoint", "saving", "measuring", "profiling")


class TimeBreakdown(Untrusted):
    """Seconds of a step and of the phases of the stage, see training/timing.py.

    ``startup_seconds`` covers imports, devices, receipt and model. ``training_seconds`` includes compilation. The
    phases add up to the stage's wall time, over all processes that trained the run.
    """

    step_seconds: Number
    # Floating-point operations, counted in the graph.
    step_flops: Number = None
    # Memory traffic of the step that XLA compiled for one device.
    step_bytes: Number = None
    step_alone_seconds: Number
    input_alone_seconds: Number
    input_wait_share: Number
    not_measured: str | None = None
    compilation_seconds: Number
    startup_seconds: Number = None
    loading_seconds: Number = None
    training_seconds: Number = None
    evaluation_seconds: Number
    checkpoint_seconds: Number
    saving_seconds: Number = None
    measuring_seconds: Number = None
    profiling_seconds: Number = None


class Segment(Untrusted):
    """Epochs, from 1, that a process trained, with the evidence of its device."""

    first_epoch: Count
    last_epoch: Count
    hostname: str | None
    device_verified: bool
    receipt: Object | None


class Beginning(Untrusted):
    """Layers with initial weights, other layers with the reason, frozen layers, and the number of adapted examples.

    ``features`` is "computed" or "read" for a last layer that was fitted to the outputs of the other layers.
    """

    taken: Annotated[tuple[str, ...], Field(strict=False)] = ()
    left: dict[str, str] = {}
    frozen: Annotated[tuple[str, ...], Field(strict=False)] = ()
    adapted_examples: Count = 0
    features: str = ""


class StoredRecords(Untrusted):
    """The image format of the records, and their size. ``skipped`` counts omitted source files by reason."""

    encoding: str
    image_size: Count
    # Shorter sides of the original images in pixels, 0 if unknown.
    smallest_side: Count = 0
    median_side: Count = 0
    largest_side: Count = 0
    resize: str
    # Shorter side and JPEG quality of images that are stored smaller than their files, 0 if none are.
    store_side: Count = 0
    store_quality: Count = 0
    num_examples: Count
    total_bytes: Count
    skipped: dict[str, Count] = {}


class Division(Untrusted):
    """Shares of the source's train split that became other splits, and what selected them.

    Shares are from 0 to 1. ``validation_share`` is a share of the examples that did not become the test split.
    """

    by: Literal["key", "label", "group", "position"]
    test_share: Number
    validation_share: Number


class Origin(Untrusted):
    """Settings of a run, and its code.

    ``settings`` contains the text of each setting by section, if it differs from its default or from config.ini.
    ``commit`` is that of the project's folder, None without git. ``is_dirty`` means that tracked files had changes.
    ``version`` is that of the installed distribution.
    """

    settings: dict[str, dict[str, str]] = {}
    commit: str | None = None
    is_dirty: bool | None = None
    version: str | None = None

    def command(self) -> str:
        """Return the command that repeats the run, quoted for a shell."""
        flags = [
            f"--{section}-{name.replace('_', '-')}={text}"
            for section, texts in self.settings.items()
            for name, text in texts.items()
        ]
        return shlex.join(["tensorcraft", "run", *flags])


class RunRecord(Untrusted):
    """Record of a run. Times are wall-clock seconds, accuracies from 0 to 1, losses of texts nats per prediction.

    Examples are units of the problem, such as images or the characters of a text. Renamed fields are also read under
    their earlier names.
    """

    schema_version: Annotated[Count, About("identity")] = 1
    fingerprint: Annotated[str, About("identity", repeated=True)]
    status: Annotated[Literal["finished", "skipped"], About("identity")] = FINISHED
    finished_at: Annotated[str, AfterValidator(_in_utc), About("identity", repeated=True)]
    # The last process that trained the run provides it, like the receipt and the hardware.
    hostname: Annotated[str | None, About("identity", repeated=True)]
    # The host that evaluated and saved the run, if no epoch remained.
    finished_on: Annotated[str | None, About("identity", repeated=True)] = None

    model: Annotated[str, About("setting", compared=True)]
    training_recipe: Annotated[str, renamed("training_recipe", "recipe"), About("setting", compared=True)]
    # Path from the settings. Comparisons use the digest of the weights.
    initial_weights: Annotated[str, About("setting", repeated=True)] = ""
    # Models without pretrained weights have the default.
    fine_tune: Annotated[str, About("setting", compared=True)] = "head_then_full"
    freeze: Annotated[str, About("setting", compared=True)] = ""
    epochs: Annotated[Count, About("setting", compared=True)]
    global_batch_size: Annotated[Count, About("setting", compared=True)]
    scale_learning_rate: Annotated[str, About("setting", compared=True)] = "none"
    augment: Annotated[str, About("setting", compared=True)] = ""
    class_weight: Annotated[str, About("setting", compared=True)] = "none"
    keep: Annotated[str, About("setting", compared=True)] = "last"
    patience: Annotated[Count, About("setting", compared=True)] = 0
    test_time_augmentation: Annotated[str, About("setting")] = "none"
    deterministic: Annotated[str, About("setting")] = "false"
    # -1 selects the value of the training recipe.
    learning_rate: Annotated[float, About("setting", compared=True)] = -1.0
    weight_decay: Annotated[float, About("setting", compared=True)] = -1.0
    label_smoothing: Annotated[float, About("setting", compared=True)] = -1.0
    # Settings that were auto, with the values that the examples got.
    chosen: Annotated[dict[str, str | Count], About("computation", repeated=True)] = {}
    seed: Annotated[Count, About("setting", repeated=True)]
    requested_backend: Annotated[str, About("setting")] = "auto"
    requested_device: Annotated[str, About("setting")]
    on_mismatch: Annotated[str, About("setting", repeated=True)] = "fail"
    replicas: Annotated[Count, About("setting", compared=True)] = 1
    processes: Annotated[Count, About("setting")] = 1
    requested_precision: Annotated[str, About("setting")]
    requested_jit_compile: Annotated[bool | str | None, About("setting", compared=True)]
    cache: Annotated[str, About("setting", compared=True)] = "auto"

    problem: Annotated[str, About("data", compared=True)] = "image_classification"
    # BYTES for a text with too many characters. Nats per byte and per character differ.
    tokens: Annotated[Literal["", "bytes"], About("data", compared=True)] = ""
    requested_dataset: Annotated[str, About("data")]
    dataset: Annotated[str, About("data")]
    dataset_verified: Annotated[bool, About("data")]
    # A label that no fingerprint includes. The first lines of the history lack the requested dataset.
    experiment: Annotated[
        str,
        Field(default_factory=lambda fields: fields["requested_dataset"] or fields["dataset"]),
        About("identity", compared=True),
    ]
    content_digests: Annotated[dict[str, str] | None, About("data", compared=True)] = None
    records_fingerprint: Annotated[str | None, About("data")] = None
    records: Annotated[StoredRecords | None, About("data")] = None
    division: Annotated[Division | None, About("data")] = None
    # Height, width and channels of an image, or the characters of a sequence.
    input_shape: Annotated[tuple[Count, ...] | None, Field(strict=False), About("data")] = None
    initial_weights_digest: Annotated[str, About("data", compared=True)] = ""
    initial_run: Annotated[str | None, About("data")] = None
    test_examples: Annotated[Count | None, About("data")] = None

    backend: Annotated[str, About("hardware")] = "tensorflow"
    effective_device: Annotated[str, About("hardware")]
    device_name: Annotated[str | None, About("hardware")]
    num_replicas: Annotated[Count, About("hardware")]
    granted_cores: Annotated[Count | None, About("hardware")] = None
    # Rounded, because the kernel's own share differs from boot to boot.
    granted_memory_gib: Annotated[Count | None, About("hardware")] = None

    precision: Annotated[str, About("computation", compared=True)]
    jit_compile: Annotated[bool, About("computation")]
    steps_per_epoch: Annotated[Count | None, About("computation")] = None
    steps_per_execution: Annotated[Count | None, About("computation")] = None
    outputs: Annotated[Literal["probabilities", "logits", "values"], About("computation")] = "probabilities"
    input_in_memory: Annotated[bool | None, About("computation")] = None
    # Environment variables that change the computation or its speed.
    computation_flags: Annotated[dict[str, str], About("computation", compared=True)] = {}

    device_verified: Annotated[bool, About("evidence")]
    device_reason: Annotated[str | None, About("evidence", repeated=True)] = None
    mismatch: Annotated[Mismatch | None, About("evidence", repeated=True)] = None
    receipt: Annotated[Object | None, About("evidence", repeated=True)] = None
    segments: Annotated[tuple[Segment, ...], Field(strict=False), About("evidence", repeated=True)] = ()
    origin: Annotated[Origin | None, About("evidence", repeated=True)] = None

    beginning: Annotated[Beginning | None, About("evidence", repeated=True)] = None

    train_seconds: Annotated[Number, _MEASURED]
    first_epoch_seconds: Annotated[Number, _MEASURED]
    evaluation_seconds: Annotated[Number, _MEASURED] = None
    examples_per_second: Annotated[Number, _MEASURED]
    test_accuracy: Annotated[Number, renamed("test_accuracy", "val_accuracy"), _MEASURED]
    test_loss: Annotated[Number, renamed("test_loss", "val_loss"), _MEASURED]
    validation_accuracy: Annotated[Number, _MEASURED] = None
    validation_loss: Annotated[Number, _MEASURED] = None
    # With test_time_augmentation.
    test_tta_accuracy: Annotated[Number, renamed("test_tta_accuracy", "val_tta_accuracy"), _MEASURED] = None
    validation_tta_accuracy: Annotated[Number, _MEASURED] = None
    # The epoch, from 1, with the selected weights, and the reason why training ended.
    kept_epoch: Annotated[Count | None, _MEASURED] = None
    ended: Annotated[Literal["epochs", "patience"] | None, _MEASURED] = None
    epochs_restored: Annotated[Count, _MEASURED] = 0
    num_parameters: Annotated[Count | None, _MEASURED] = None
    num_trainable_parameters: Annotated[Count | None, _MEASURED] = None
    # Size of model.keras, or of the weights without it.
    model_bytes: Annotated[Count | None, _MEASURED] = None
    reference_flops_per_second: Annotated[Number, _MEASURED] = None
    peak_host_bytes: Annotated[Count | None, _MEASURED] = None
    peak_device_bytes: Annotated[Count | None, _MEASURED] = None
    time_breakdown: Annotated[TimeBreakdown | None, _MEASURED] = None

    @model_validator(mode="before")
    @classmethod
    def _from_earlier_versions(cls, values: Any) -> Any:
        """Fill fields of earlier versions from the receipt."""
        receipt = values.get("receipt") if isinstance(values, dict) else None
        if not isinstance(receipt, dict):
            return values
        if isinstance(flags := receipt.get("flags"), dict) and values.get("schema_version", 1) < 11:
            values = {"computation_flags": computation_flags(flags), **values}
        return {**host_facts(receipt), **values} if values.get("schema_version", 1) == 1 else values

    @model_validator(mode="after")
    def _check_skipped(self) -> "RunRecord":
        if self.status == FINISHED:
            return self
        if self.mismatch is None:
            raise ValueError(f'"mismatch": expected the reason why the run was {SKIPPED}, found null')
        for name in ("train_seconds", "first_epoch_seconds", "examples_per_second", "test_accuracy", "test_loss"):
            if getattr(self, name) is not None:
                raise ValueError(f'"{name}": expected null in a run that was {SKIPPED}, found {getattr(self, name)!r}')
        return self


def git_state(folder: Path) -> tuple[str | None, bool | None]:
    """Return the commit of a folder's work tree, and whether tracked files have changes.

    Both are None if the folder is not in a work tree, or if git is not installed, fails or takes longer than 10 s. A
    work tree without commits has no commit. The command runs no hook, monitor or pager and writes no file.
    """
    options = ("--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
    status = ("status", "--porcelain=v2", "--branch", "--untracked-files=no", "--ignore-submodules=dirty")
    # The variables of git, as in a hook, may name another work tree.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        output = subprocess.run(
            ["git", *options, *status],
            cwd=folder,
            env={**environment, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=_GIT_SECONDS,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return None, None
    lines = output.splitlines()
    commit = next((words[2] for words in map(str.split, lines) if words[1:2] == ["branch.oid"]), None)
    return None if commit == "(initial)" else commit, any(not line.startswith("#") for line in lines)


def recorded_settings(settings: object) -> dict[str, Any]:
    """Return the fields of the record that repeat a run's settings, from an object with an attribute per setting."""
    # Requested values have a prefix in the record.
    return {name: getattr(settings, name.removeprefix("requested_")) for name in names("setting")}


def names(*groups: FieldGroup, compared: bool | None = None, repeated: bool | None = None) -> tuple[str, ...]:
    """Return the names of the record's fields in these groups, or in all, with these properties, in order."""
    return tuple(
        name
        for name, about in _abouts(RunRecord).items()
        if compared in (None, about.compared)
        and repeated in (None, about.repeated)
        and (not groups or about.group in groups)
    )


@cache
def _abouts(record: type[RunRecord]) -> dict[str, About]:
    fields = record.model_fields.items()
    return {name: next(item for item in field.metadata if isinstance(item, About)) for name, field in fields}


def is_placeholder(run: Mapping[str, Any]) -> bool:
    """Return whether placeholder examples replaced the requested dataset."""
    return run.get("dataset") == "synthetic" and run.get("requested_dataset", "synthetic") != "synthetic"


def host_facts(receipt: Mapping[str, Any]) -> dict[str, Any]:
    """Return granted cores and memory, and the speed of the probe, from a receipt. Missing values are None."""
    host, probe = (section if isinstance(section := receipt.get(name), Mapping) else {} for name in ("host", "probe"))
    memory = host.get("granted_memory_bytes")
    return {
        "granted_cores": host.get("granted_cores"),
        "granted_memory_gib": round(memory / 2**30) if isinstance(memory, int) and 0 <= memory < 2**63 else None,
        # Convolutions dominate the work of an image model.
        "reference_flops_per_second": probe.get("convolution_flops_per_second"),
    }


def read_record(folder: Path) -> RunRecord:
    """Read the record of a run's folder, of any version. Raises DamagedArtifactError if it is missing or invalid."""
    path = folder / RECORD_NAME
    return checked(RunRecord, read_text(path), path)


def write_record(folder: Path, record: RunRecord) -> None:
    """Write the record into a run's folder as JSON without NaN or infinities."""
    (folder / RECORD_NAME).write_text(record.model_dump_json(indent=1) + "\n", encoding="utf-8")
