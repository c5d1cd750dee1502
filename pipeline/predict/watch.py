"""Counts of the predictions of a run by day, and a comparison of recent ones with those for the test split.

The files contain numbers of predictions only, no names and no contents of the predicted files.
"""

import contextlib
import json
import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from filelock import FileLock
from scipy.stats import chi2_contingency

from pipeline.artifacts import layout
from pipeline.artifacts.manifest import read_manifest
from pipeline.artifacts.publish import replacing
from pipeline.errors import DamagedArtifactError
from pipeline.predict import Job
from pipeline.problems.problem import EVALUATION_NAME, PREDICTIONS_NAME
from pipeline.problems.results import results_of
from pipeline.runs.predictions import read_table, read_thresholds
from pipeline.runs.record import RunRecord, read_record
from pipeline.runs.validation import Count, Untrusted, checked, read_text

#: Probability of a warning about a run if nothing has changed.
LEVEL = 0.01
RECENT_DAYS, MIN_RECENT = 7, 100
# Smallest expected number of predictions in a bin of the test. Rarer bins are merged.
_MIN_EXPECTED = 5
# Of the files of a run.
_DAMAGED = (DamagedArtifactError, OSError, AttributeError, LookupError, TypeError, ValueError)
#: Number of predictions by quantity, such as "confidence", and by bin, such as "90% to 100%".
Counts = Mapping[str, Mapping[str, int]]
#: Outputs of the model, float (examples, values), or None for the predictions of the test split → the bin of each
#: example by quantity, text (examples,).
BinsOf = Callable[[np.ndarray | None], dict[str, np.ndarray]]

_logger = logging.getLogger(__name__)


class _Day(Untrusted):
    counts: dict[str, dict[str, Count]]


class _Evaluation(Untrusted):
    label_names: list[str]


class Watch:
    """Counts predictions for the file of the day, if the job is watched and its problem can be. Thread-safe."""

    def __init__(self, job: Job) -> None:
        run, hook = Path(job.run).resolve(), results_of(job.problem).hook("watched")
        self._folder, self._bins_of = run.parent.parent / layout.WATCHED / run.name, None
        self._lock, self._counts = threading.Lock(), {}
        try:
            self._bins_of = hook(run, job.label_names) if hook and job.is_watched else None
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

    def bins_of(outputs: np.ndarray | None) -> dict[str, np.ndarray]:
        if outputs is None:
            table = read_table(run / PREDICTIONS_NAME, {"predicted": pa.string(), "probability": pa.float64()})
            label, confidence = (column.to_numpy() for column in table.columns)
        else:
            label, confidence = labels[outputs.argmax(axis=1)], outputs.max(axis=1)
        return {"label": label, "confidence": tenths[(confidence * 10).astype(int).clip(0, 9)]}

    return bins_of


def value_bins(run: Path, label_names: Sequence[str]) -> BinsOf:
    """Return a function for several values: each label by its threshold, or each number by the deciles of the test."""

    def test_outputs() -> np.ndarray:
        types = {f"predicted {name}": pa.float64() for name in label_names}
        return np.column_stack(read_table(run / PREDICTIONS_NAME, types).columns)

    if thresholds := read_thresholds(run):
        kind, limits, bins = "label", [[threshold] for threshold in thresholds], np.array(["no", "yes"])
    else:
        limits = np.quantile(test_outputs(), np.arange(0.1, 1, 0.1), axis=0).T
        kind, bins = "value", np.array([f"part {number} of 10" for number in range(1, 11)])
    return lambda outputs: {
        f"{kind} {name}": bins[np.searchsorted(limit, values, side="right")]
        for name, limit, values in zip(
            label_names, limits, (test_outputs() if outputs is None else outputs).T, strict=True
        )
    }


def reference(root: Path, run: Path, record: RunRecord) -> Counts:
    """Count the predictions for the test split, and the sizes of the images of the source if it has them."""
    path, sizes = run / EVALUATION_NAME, {}
    for folder in layout.artifact_folders(root / layout.RECORDS):
        with contextlib.suppress(DamagedArtifactError):
            if (manifest := read_manifest(folder))["fingerprint"] == record.records_fingerprint:
                sizes = {int(power): count for power, count in manifest["source"].get("side_counts", {}).items()}
    label_names = checked(_Evaluation, read_text(path), path).label_names
    return _counted(results_of(record.problem).hook("watched")(run, label_names)(None), sizes)


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


def _read(files: Iterable[Path]) -> Iterator[Counts]:
    """Yield the counts of days. Damaged files are logged, and left out."""
    for file in files:
        try:
            yield checked(_Day, read_text(file), file, remedy="Its counts are left out.").counts
        except DamagedArtifactError as error:
            _logger.warning("%s", error)


def _total(parts: Iterable[Counts]) -> Counts:
    total = defaultdict(Counter)
    for name, bins in (item for part in parts for item in part.items()):
        total[name].update(bins)
    return total


def _counted(bins: Mapping[str, np.ndarray], sizes: Mapping[int, int]) -> Counts:
    """Count bins. ``sizes`` are numbers of images by the binary logarithm of their shorter sides."""
    counts = {name: Counter(values.tolist()) for name, values in bins.items()}
    named = {f"{2**power} to {2 ** (power + 1) - 1} pixels": count for power, count in sorted(sizes.items())}
    return counts | ({"size": named} if named else {})
