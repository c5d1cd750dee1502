"""Reads a run's folder. The folder is untrusted: schemas check its names and types here, once."""

import base64
import io
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from PIL import Image
from pydantic import Field, create_model, model_validator

from pipeline.artefacts.fingerprint import fingerprint
from pipeline.artefacts.manifest import MANIFEST_NAME, read_fetched, read_manifest
from pipeline.errors import DamagedArtefactError
from pipeline.problems.problem import AUGMENTED_NAME, EVALUATION_NAME, EXAMPLES_NAME, MISTAKES_NAME
from pipeline.problems.results import results_of
from pipeline.problems.units import BYTES
from pipeline.runs.metrics import METRICS_NAME, read_metrics
from pipeline.runs.record import SKIPPED, names, read_record
from pipeline.runs.untrusted import Count, Figure, Untrusted, checked, message, read_text

# More than any dataset or model here has, and more than a page would show.
_MOST_LABELS, _MOST_POSITIONS, _MOST_TOKENS, _MOST_SHOWN, _LONGEST = 10_000, 65_536, 256, 100, 100_000
_MOST_TILES, _MOST_TILE_SIDE = 1_000, 512

_logger = logging.getLogger(__name__)
_Found = TypeVar("_Found")


def _object(**fields: Any) -> type[Untrusted]:
    return create_model("Object", __base__=Untrusted, **fields)


_Label = _object(examples=Count, precision=Figure, recall=Figure, f1=Figure)
_Bin = _object(low=Figure, high=Figure, examples=Count, confidence=Figure, accuracy=Figure)
_Mistake = _object(index=Count, label=Count, predicted=Count, confidence=Figure)
# Earlier versions lack the prediction.
_Example = _object(index=Count, label=Count, predicted=(Count | None, None))
_Augmented = _object(index=Count, label=Count, epoch=Count)
_Tiles = _object(per_row=Count, height=Count, width=Count)
_WithoutDuplicates = _object(num_examples=Count, accuracy=Figure)


class ImageEvaluation(Untrusted):
    """Of an image classifier."""

    label_names: Annotated[list[str], Field(min_length=1, max_length=_MOST_LABELS)]
    label_counts: dict[str, dict[str, Count]]
    num_examples: Count
    accuracy: Figure
    confusion_matrix: list[list[Count]]
    classes: list[_Label]
    calibration: list[_Bin]
    expected_calibration_error: Figure
    data_warnings: list[tuple[str, str]] = []
    without_duplicates: _WithoutDuplicates | None = None
    mistakes: list[_Mistake]
    examples: list[_Example]
    augmented: list[_Augmented] = []
    tiles: _Tiles

    @model_validator(mode="after")
    def _is_about_its_labels(self) -> "ImageEvaluation":
        count = len(self.label_names)
        if len(self.classes) != count or [len(row) for row in self.confusion_matrix] != [count] * count:
            raise ValueError(f'"confusion_matrix" and "classes": expected counts for each of {count} labels')
        predicted = (one.predicted or 0 for one in (*self.mistakes, *self.examples))
        labels = (one.label for one in (*self.mistakes, *self.examples, *self.augmented))
        if (greatest := max((*labels, *predicted), default=0)) >= count:
            names = '"mistakes", "examples" and "augmented"'
            raise ValueError(f"{names}: expected labels below {count}, found {greatest}")
        return self


class _Passage(Untrusted):
    index: Count
    loss: Figure
    pieces: Annotated[list[str], Field(max_length=_MOST_POSITIONS + 1)]
    nats: list[Figure]

    @model_validator(mode="after")
    def _has_a_figure_for_each_piece(self) -> "_Passage":
        if len(self.pieces) != len(self.nats):
            raise ValueError(f'"nats": expected {len(self.pieces)} figures, one for each piece, found {len(self.nats)}')
        return self


_Text = Annotated[str, Field(max_length=_LONGEST)]
_Written = _object(temperature=Figure, prompt=_Text, text=_Text)


class TextEvaluation(Untrusted):
    """Of a text. Losses are nats per token."""

    problem: Literal["next_token"]
    tokens: Literal["characters", "bytes"]
    vocabulary: Annotated[list[str], Field(max_length=_MOST_TOKENS)]
    characters: dict[str, Count]
    sequence_length: Count
    num_examples: Count
    loss: Figure
    bits: Figure
    perplexity: Figure
    accuracy: Figure
    position_loss: Annotated[list[Figure], Field(max_length=_MOST_POSITIONS)]
    passages: Annotated[list[_Passage], Field(max_length=_MOST_SHOWN)]
    written: Annotated[list[_Written], Field(max_length=_MOST_SHOWN)]
    data_warnings: list[tuple[str, str]] = []


def or_none(read: Callable[..., _Found], *arguments: object, **options: object) -> _Found | None:
    """The result of a function that reads an artifact. None if that is damaged, which the log says."""
    try:
        return read(*arguments, **options)
    except DamagedArtefactError as error:
        _logger.warning("left out of the report: %s", error)
        return None


def read_run(folder: Path) -> dict[str, Any]:
    """Read one run: the fields of its record and more.

    `curves`: the rows of metrics.jsonl. `evaluation`: None if there is none. `resumed`: first `epoch` and `hostname` of
    each process that resumed it, one epoch too many if none was left. `fetched_from`: its remote. `made_from` and
    `code`: hashes of the manifest's identity without seed and batch, and of code and library versions alone.

    Raises:
        DamagedArtefactError: A file is missing or damaged; names file and field.
    """
    run = read_record(folder).model_dump(mode="json")
    skipped = run["status"] == SKIPPED
    evaluation = None if skipped else _evaluation(folder, run["problem"])
    if (evaluation or {}).get("tokens") == BYTES:
        # Records before version 10 lack it.
        run["tokens"] = BYTES
    return {
        **run,
        **_origin(folder),
        "resumed": _resumed(run),
        "fetched_from": (read_fetched(folder) or {"remote": ""})["remote"],
        "curves": [] if skipped else read_metrics(folder / METRICS_NAME),
        "evaluation": evaluation,
    }


def _resumed(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    segments, restored = run["segments"], run["epochs_restored"]
    found = [{"epoch": one["first_epoch"], "hostname": one["hostname"]} for one in segments[1:]]
    if segments and restored >= segments[-1]["last_epoch"]:
        # No epoch was left to train, so no segment shows the resumption.
        found.append({"epoch": restored + 1, "hostname": run["finished_on"]})
    elif restored and not segments:
        # An earlier version recorded the last time alone.
        found.append({"epoch": restored + 1, "hostname": run["hostname"]})
    return found


def _origin(folder: Path) -> dict[str, str | None]:
    if not (folder / MANIFEST_NAME).exists():
        return {"made_from": None, "code": None}
    identity = read_manifest(folder)["identity"]
    try:
        settings, upstream = dict(identity["settings"]), dict(identity["upstream"])
    except (KeyError, TypeError, ValueError) as error:
        problem = f'"identity": expected settings and upstream, found other ({error!r})'
        raise DamagedArtefactError(message(folder / MANIFEST_NAME, problem)) from error
    # In the identity these have their names in the record.
    for name in ("global_batch_size", *names("setting", repeated=True)):
        settings.pop(name, None)
    return {
        "made_from": fingerprint({**identity, "settings": settings, "upstream": upstream}),
        "code": fingerprint({part: identity.get(part) for part in ("code", "packages")}),
    }


def _evaluation(folder: Path, problem: str) -> dict[str, Any] | None:
    path = folder / EVALUATION_NAME
    if not path.exists():
        return None
    schema = results_of(problem).hook("evaluation_schema")
    return schema and checked(schema, read_text(path), path).model_dump()


def worst_confusions(facts: Mapping[str, Any], limit: int) -> Sequence[tuple[int, int, int]]:
    """The pairs of labels most often taken for each other: (true, predicted, examples), the most frequent first."""
    pairs = [
        (true, given, count)
        for true, row in enumerate(facts["confusion_matrix"])
        for given, count in enumerate(row)
        if count and given != true
    ]
    return sorted(pairs, key=lambda pair: (-pair[2], pair[0], pair[1]))[:limit]


def read_pictures(folder: Path, facts: Mapping[str, Any]) -> dict[str, list[str]]:
    """The tiles of the ``mistakes``, the ``examples`` and the ``augmented`` ones, in their order, as PNGs in base64.

    Raises:
        DamagedArtefactError: A file is missing or is not an image of as many tiles.
    """
    sheets = {"mistakes": MISTAKES_NAME, "examples": EXAMPLES_NAME, "augmented": AUGMENTED_NAME}
    return {kind: _cut(folder / name, facts["tiles"], len(facts[kind])) for kind, name in sheets.items()}


def _cut(path: Path, tiles: Mapping[str, int], count: int) -> list[str]:
    per_row, height, width = (tiles[name] for name in ("per_row", "height", "width"))
    if not (0 < per_row <= _MOST_TILES and count <= _MOST_TILES and 0 < height <= _MOST_TILE_SIDE >= width > 0):
        raise DamagedArtefactError(message(path, f"expected a sheet of small tiles, found {dict(tiles)!r:.80}"))
    if not count:
        return []
    try:
        with Image.open(path, formats=["PNG"]) as sheet:
            if sheet.size != (per_row * width, -(-count // per_row) * height):
                raise DamagedArtefactError(message(path, f"expected {count} tiles, found {sheet.size} pixels"))
            corners = [(place % per_row * width, place // per_row * height) for place in range(count)]
            return [_png(sheet.crop((left, top, left + width, top + height))) for left, top in corners]
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DamagedArtefactError(message(path, f"expected a PNG image: {error}")) from error


def _png(image: Image.Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
