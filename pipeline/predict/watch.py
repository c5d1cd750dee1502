"""Counts of the predictions of a run by day, and a comparison of recent ones with those for the test split.

The files contain numbers of predictions only, no names and no contents of the predicted files.
"""

import contextlib
import csv
import json
import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from filelock import FileLock
from scipy.stats import chi2_contingency

from pipeline.artifacts import layout
from pipeline.artifacts.manifest import read_manifest
from pipeline.errors import DamagedArtifactError
from pipeline.problems.problem import EVALUATION_NAME, PREDICTIONS_NAME
from pipeline.problems.results import results_of
from pipeline.runs.record import RunRecord, read_record
from pipeline.runs.validation import Count, Untrusted, checked, read_text
from pipeline.shards.shared import replacing

#: Probability of a warning about a run if nothing has changed.
LEVEL = 0.01
RECENT_DAYS, MIN_RECENT = 7, 100
# Smallest expected number of predictions in a bin of the test. Rarer bins are merged.
_MIN_EXPECTED = 5
# Of the files of a run.
_DAMAGED = (DamagedArtifactError, OSError, AttributeError, LookupError, TypeError, ValueError)
#: Number of predictions by quantity, such as "confidence", and by bin, such as "90% to 100%".
Counts = Mapping[str, Mapping[str, int]]
#: Outputs of the model, float (examples, values) → the bin of each example by quantity, text (examples,).
BinsOf = Callable[[np.ndarray], dict[str, np.ndarray]]

_logger = logging.getLogger(__name__)


class _Day(Untrusted):
    counts: dict[str, dict[str, Count]]


class Watch:
    """Counts predictions of a run for the file of the day, if the problem has ``Results.watched``. Thread-safe."""

    def __init__(self, run: Path, problem: str, label_names: Sequence[str]) -> None:
        hook, self._bins_of = results_of(problem).hook("watched"), None
        self._folder = run.resolve().parent.parent / layout.WATCHED / run.resolve().name
        self._lock, self._counts = threading.Lock(), {}
        try:
            self._bins_of = hook and hook(run, label_names)
        except _DAMAGED as error:
            _logger.warning("The predictions of %s are not counted. %s", run.name, error)

    def add(self, outputs: np.ndarray, sides: Sequence[int] = ()) -> None:
        """Count predictions, by outputs float (examples, values) and the shorter sides of their images in pixels."""
        if self._bins_of and len(outputs):
            counts = _counted(self._bins_of(np.nan_to_num(outputs)), Counter(side.bit_length() - 1 for side in sides))
            with self._lock:
                self._counts = _total([self._counts, counts])

    def save(self) -> None:
        """Add the counts to the file of the present day in UTC. An error is logged, and ends nothing."""
        with self._lock:
            counts, self._counts = self._counts, {}
        if not counts:
            return
        file = self._folder / f"{datetime.now(UTC):%Y-%m-%d}.json"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self._folder / ".lock"), replacing(file) as temporary:
                total = _total([*_read([file] if file.exists() else []), counts])
                temporary.write_text(json.dumps({"counts": total}, indent=1), encoding="utf-8")
        except OSError as error:
            _logger.warning("The counts of these predictions were not recorded. %s", error)


def label_bins(run: Path, label_names: Sequence[str]) -> BinsOf:
    """Return a function for the label and the confidence of a classifier."""
    labels, tenths = np.array(label_names), np.array([f"{low}% to {low + 10}%" for low in range(0, 100, 10)])
    return lambda outputs: {
        "label": labels[outputs.argmax(axis=1)],
        "confidence": tenths[(outputs.max(axis=1) * 10).astype(int).clip(0, 9)],
    }


def value_bins(run: Path, label_names: Sequence[str]) -> BinsOf:
    """Return a function for several values: each label by its threshold, or each number by the deciles of the test."""
    if labels := _evaluation(run).get("labels"):
        kind, limits, bins = "label", [[label["threshold"]] for label in labels], np.array(["no", "yes"])
    else:
        limits = np.quantile(_test_outputs(run, label_names), np.arange(0.1, 1, 0.1), axis=0).T
        kind, bins = "value", np.array([f"part {number} of 10" for number in range(1, 11)])
    return lambda outputs: {
        f"{kind} {name}": bins[np.searchsorted(limit, values, side="right")]
        for name, limit, values in zip(label_names, limits, outputs.T, strict=True)
    }


def reference(root: Path, run: Path, record: RunRecord) -> Counts:
    """Count the predictions for the test split, and the sizes of the images of the source if it has them."""
    label_names, sizes = _evaluation(run)["label_names"], {}
    for folder in layout.artifact_folders(root / layout.RECORDS):
        with contextlib.suppress(DamagedArtifactError):
            if (manifest := read_manifest(folder))["fingerprint"] == record.records_fingerprint:
                sizes = {int(power): count for power, count in manifest["source"].get("side_counts", {}).items()}
    bins_of = results_of(record.problem).hook("watched")(run, label_names)
    return _counted(bins_of(_test_outputs(run, label_names)), sizes)


def check_recent(root: Path, experiment: str) -> list[str]:
    """Describe how the recent predictions of each run of an experiment differ from those for its test split."""
    found, first_day = [], f"{datetime.now(UTC) - timedelta(days=RECENT_DAYS - 1):%Y-%m-%d}"
    for folder in layout.artifact_folders(root / layout.WATCHED):
        recent = _total(_read(file for file in sorted(folder.glob("*.json")) if file.stem >= first_day))
        run, count = root / layout.RUNS / folder.name, max((sum(bins.values()) for bins in recent.values()), default=0)
        if count >= MIN_RECENT and run.is_dir():
            try:
                if (record := read_record(run)).experiment == experiment:
                    found += [f"{run.name}: {each}" for each in _differences(recent, reference(root, run, record))]
            except _DAMAGED as error:
                _logger.warning("The predictions of %s are not compared. %s", run.name, error)
    return found


def _differences(recent: Counts, expected: Counts) -> Iterator[str]:
    found = p_values(recent, expected)
    # The level is that of all tests of a run together (Bonferroni).
    for name in (name for name, p_value in found.items() if p_value < LEVEL / len(found)):
        pairs = [(counts[name], sum(counts[name].values())) for counts in (recent, expected)]
        shares = {key: [bins.get(key, 0) / total for bins, total in pairs] for key in {**pairs[0][0], **pairs[1][0]}}
        largest, (now, before) = max(shares.items(), key=lambda item: abs(item[1][0] - item[1][1]))
        yield (
            f"predictions of the last {RECENT_DAYS} days differ from the test split in {name} (p = {found[name]:.1g}). "
            f"{largest!r} has {now:.1%} of them, and {before:.1%} of the test split. Label some of "
            "these examples, and evaluate the model on them."
        )


def p_values(recent: Counts, expected: Counts) -> dict[str, float]:
    """Return the p-value of a chi-square test of homogeneity for each quantity that both have."""
    return {name: _p_value(recent[name], bins) for name, bins in expected.items() if name in recent}


def _p_value(recent: Mapping[str, int], expected: Mapping[str, int]) -> float:
    table = np.array([[bins.get(name, 0) for name in {**recent, **expected}] for bins in (recent, expected)])
    table = table[:, table.sum(axis=0).argsort(kind="stable")]
    # The expected counts of the smaller sample depend on the totals only, and so do the merged bins.
    few = table.sum(axis=0) * table.sum(axis=1).min() / table.sum()
    merged = 1 + max(np.argmax(few.cumsum() >= _MIN_EXPECTED), np.sum(few < _MIN_EXPECTED) - 1)
    table = np.c_[table[:, :merged].sum(axis=1), table[:, merged:]]
    return float(chi2_contingency(table, correction=False).pvalue) if table.shape[1] > 1 else 1.0


def _evaluation(run: Path) -> dict:
    return json.loads(read_text(run / EVALUATION_NAME))


def _test_outputs(run: Path, label_names: Sequence[str]) -> np.ndarray:
    """Return the outputs for the test split, float (examples, values). A classifier has that of its label only."""
    with (run / PREDICTIONS_NAME).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if "probability" not in rows[0]:
        return np.array([[float(row[f"predicted {name}"]) for name in label_names] for row in rows])
    outputs = np.zeros((len(rows), len(label_names)))
    numbers = {name: number for number, name in enumerate(label_names)}
    for output, row in zip(outputs, rows, strict=True):
        output[numbers[row["predicted"]]] = float(row["probability"])
    return outputs


def _read(files: Iterable[Path]) -> Iterator[Counts]:
    """Yield the counts of days. Damaged files are logged, and left out."""
    for file in files:
        try:
            yield checked(_Day, read_text(file), file, remedy="Its counts are left out.").counts
        except DamagedArtifactError as error:
            _logger.warning("%s", error)


def _total(parts: Iterable[Counts]) -> Counts:
    total = defaultdict(Counter)
    for part in parts:
        for name, bins in part.items():
            total[name].update(bins)
    return total


def _counted(bins: Mapping[str, np.ndarray], sizes: Mapping[int, int]) -> Counts:
    """Count bins. ``sizes`` are numbers of images by the binary logarithm of their shorter sides."""
    counts = {name: Counter(values.tolist()) for name, values in bins.items()}
    named = {f"{2**power} to {2 ** (power + 1) - 1} pixels": count for power, count in sorted(sizes.items())}
    return counts | ({"size": named} if named else {})
