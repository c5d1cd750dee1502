"""Published metrics by source, from ``experiments/<name>.published.json``.

The files are untrusted. Metrics that were not published are omitted, not derived from others.
"""

from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from pipeline.runs.validation import Count, Untrusted, checked, read_text, renamed

_Text = Annotated[str, Field(min_length=1)]
_Texts = Annotated[tuple[_Text, ...], Field(strict=False)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Positive = Annotated[_Number, Field(gt=0)] | None
_Share = Annotated[_Number, Field(ge=0, le=1)] | None

_SPEEDS = ("train_seconds", "examples_per_second", "epoch_seconds", "microseconds_per_example")
#: A row has at least one of these.
METRICS = (*_SPEEDS, "test_accuracy", "test_loss")


# A misspelled name would silently omit a metric, so all classes forbid unknown fields.
class _Row(Untrusted, extra="forbid"):
    """A published measurement. ``scenario`` is its name. ``model`` is the name of our model, "" for any other."""

    scenario: _Text
    requested_device: str
    effective_device: str
    device_note: str = ""
    model: str = ""
    epochs: Count | None = None
    global_batch_size: Count | None = None
    train_seconds: _Positive = None
    examples_per_second: _Positive = None
    epoch_seconds: _Positive = None
    microseconds_per_example: _Positive = None
    test_accuracy: Annotated[_Share, renamed("test_accuracy", "val_accuracy")] = None
    test_loss: Annotated[_Number | None, renamed("test_loss", "val_loss")] = None
    wrong: Count | None = None
    test_examples: Count | None = None
    details: _Texts = ()

    @model_validator(mode="after")
    def _has_metric(self) -> "_Row":
        if all(getattr(self, name) is None for name in METRICS) and not self.details:
            raise ValueError(f"expected a metric ({', '.join(METRICS)}) or text in details")
        return self


class _Source(Untrusted, extra="forbid"):
    title: _Text
    not_stated: _Texts = ()
    rows: Annotated[tuple[_Row, ...], Field(strict=False, min_length=1)]


class _Published(Untrusted, extra="forbid"):
    """A file of published metrics. ``datasets`` lists the names of its data, the published name first."""

    datasets: Annotated[_Texts, Field(min_length=1)]
    sources: Annotated[tuple[_Source, ...], Field(strict=False, min_length=1)]


class PublishedRow(_Row):
    """A row with its experiment, data and source, and with the facts that the source does not state."""

    experiment: str
    datasets: _Texts
    source: str
    not_stated: _Texts = ()


def read_published(path: Path, experiment: str) -> list[PublishedRow]:
    """Read the rows of a file. The DamagedArtifactError of an invalid one names file and field."""
    file = checked(_Published, read_text(path), path, remedy="Correct or remove the file.")
    origin = {"experiment": experiment, "datasets": file.datasets}
    return [
        PublishedRow(**dict(row), **origin, source=source.title, not_stated=source.not_stated)
        for source in file.sources
        for row in source.rows
    ]
