"""Figures that were published elsewhere, by source: ``experiments/<name>.published.json``.

The files are untrusted. A figure that was not published is omitted, not derived from others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from pipeline.report.data.reading import Run
from pipeline.report.data.scenarios import facts, grouped
from pipeline.runs.validation import Count, Untrusted, checked, read_text, renamed

_REMEDY = "Put it right, or remove the file."
_Text = Annotated[str, Field(min_length=1)]
_Texts = Annotated[tuple[_Text, ...], Field(strict=False)]
_Figure = Annotated[float, Field(allow_inf_nan=False)]
_Positive = Annotated[_Figure, Field(gt=0)] | None
_Share = Annotated[_Figure, Field(ge=0, le=1)] | None

#: At least one of these makes a row.
FIGURES = (
    *("train_seconds", "examples_per_second", "epoch_seconds", "microseconds_per_example"),
    *("test_accuracy", "test_loss"),
)


class _Strict(Untrusted):
    # A misspelt name would silently leave a figure out.
    model_config = ConfigDict(extra="forbid")


class _Row(_Strict):
    """``scenario`` is its name. ``model`` is the name of our model, "" if it is another."""

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
    test_loss: Annotated[_Figure | None, renamed("test_loss", "val_loss")] = None
    wrong: Count | None = None
    test_examples: Count | None = None
    details: _Texts = ()

    @model_validator(mode="after")
    def _has_a_figure(self) -> "_Row":
        if all(getattr(self, name) is None for name in FIGURES) and not self.details:
            raise ValueError(f"expected a figure, one of {', '.join(FIGURES)}, or words under details")
        return self


class _Source(_Strict):
    title: _Text
    not_stated: _Texts = ()
    rows: Annotated[tuple[_Row, ...], Field(strict=False, min_length=1)]


class _Published(_Strict):
    """``datasets``: the names of its data, the published one first."""

    datasets: Annotated[_Texts, Field(min_length=1)]
    sources: Annotated[tuple[_Source, ...], Field(strict=False, min_length=1)]


class PublishedRow(_Row):
    """A row with its experiment, its data, its source, and what the source left unsaid."""

    experiment: str
    datasets: _Texts
    source: str
    not_stated: _Texts = ()
    published_elsewhere: bool = True


@dataclass(frozen=True)
class PublishedLine:
    """Published times of a device and source by batch."""

    rows: list[PublishedRow]

    @property
    def by_batch(self) -> list[PublishedRow]:
        """The rows, the smallest batch first."""
        return sorted(self.rows, key=lambda row: row.global_batch_size)

    def to_json(self) -> dict[str, Any]:
        """The shared fields, and ``points`` by batch."""
        of_a_point = ("global_batch_size", "epoch_seconds", "microseconds_per_example")
        points = [facts(row, of_a_point) for row in self.by_batch]
        return {**facts(self.rows[0], ("effective_device", "source")), "points": points}


def read_published(path: Path, experiment: str) -> list[PublishedRow]:
    """The rows of a file.

    Raises:
        DamagedArtifactError: It is missing or not such a file; names file and field.
    """
    found = checked(_Published, read_text(path), path, remedy=_REMEDY)
    return [
        PublishedRow(
            **dict(row),
            experiment=experiment,
            datasets=found.datasets,
            source=source.title,
            not_stated=source.not_stated,
        )
        for source in found.sources
        for row in source.rows
    ]


def published_beside(runs: Sequence[Run], published: Iterable[PublishedRow]) -> list[PublishedRow]:
    """The published figures about an experiment and data of these runs: beside any other they would mislead."""
    used = {(run.experiment, run.dataset) for run in runs}
    return [row for row in published if any((row.experiment, name) in used for name in row.datasets)]


def by_batch(published: Iterable[PublishedRow], run: Run) -> list[PublishedLine]:
    """The published times of a run's model by batch, by device and source."""
    mine = [
        row
        for row in published
        if (row.experiment, row.model) == (run.experiment, run.model)
        and row.global_batch_size
        and (row.epoch_seconds or row.microseconds_per_example)
    ]
    return [PublishedLine(rows) for rows in grouped(mine, ("effective_device", "source"))]
