"""Plain text for metrics and runs. It is one bounded line without control characters, and not yet escaped."""

import math
import statistics
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pipeline.errors import plural
from pipeline.records import CONTENT_DIGESTS
from pipeline.runs.record import SKIPPED

if TYPE_CHECKING:
    from pipeline.report.data.history import Change
    from pipeline.report.data.reading import Entry, Resumption, Run


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation of a metric over runs. The deviation of a single run is None."""

    mean: float | None
    deviation: float | None

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Spread":
        """Return mean and deviation of values. Both are None if a value is missing or not finite.

        The mean of the remaining values would hide a run that diverged.
        """
        if not values or any(value is None or not math.isfinite(value) for value in values):
            return cls(None, None)
        try:
            mean = statistics.fmean(values)
            squares = math.fsum((value - mean) ** 2 for value in values)
        except OverflowError:
            return cls(None, None)
        return cls(mean, math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else None)


Metric = Spread | float | None

MISSING = "–"
NO_REFERENCE = "own data, no reference checksum"

_MAX_LETTERS = 80
_DATASET_NAMES = {"cifar10": "CIFAR-10", "tiny_shakespeare": "Tiny Shakespeare"}
# Settings that override the training recipe, unless they are below 0.
_OVERRIDES = ("learning_rate", "weight_decay", "label_smoothing")
_MAX_RESUMED = 120


def number(metric: Metric, decimals: int = 0, unit: str = "", scale: float = 1) -> str:
    """Format a metric times ``scale`` with thousands separators, and its standard deviation if there is one.

    A metric that is missing or not finite gives a dash.
    """
    if isinstance(metric, Spread):
        if metric.deviation is None:
            return number(metric.mean, decimals, unit, scale)
        return f"{number(metric.mean, decimals, '', scale)} ± {number(metric.deviation, decimals, unit, scale)}"
    value = math.nan if metric is None else metric * scale
    if not math.isfinite(value):
        return MISSING
    # The digits of a diverged loss, such as 1e38, would not fit the page.
    return f"{value:,.{decimals}f}{unit}" if abs(value) < 1e12 else f"{value:.3g}{unit}"


def as_published(value: float | None) -> str:
    """Format a number with the digits of its publication."""
    # Further digits come from the binary representation.
    return number(value) if value is None or not math.isfinite(value) else f"{value:,.12g}"


def percent(fraction: Metric, decimals: int = 1) -> str:
    """Format a fraction from 0 to 1 in percent."""
    return number(fraction, decimals, "%", 100)


def signed(value: float | None, decimals: int = 0, unit: str = "", scale: float = 1) -> str:
    """Format a difference with its sign."""
    text = number(value, decimals, unit, scale)
    return f"+{text}" if value is not None and math.isfinite(value) and value > 0 else text.replace("-", "−")


def change_of(change: "Change") -> str:
    """Format the change of an accuracy in points, or that of a loss."""
    difference = change.test_accuracy.change
    return points(difference) if change.has_accuracy else signed(None if difference is None else -difference, 3)


def points(fraction: float | None) -> str:
    """Format a difference of two fractions from 0 to 1 in percentage points."""
    return signed(fraction, 2, " points", 100)


def left_out(count: int, noun: str) -> str:
    """Return a note about entries that only report.json contains, or ""."""
    return f"{plural(count, noun)} in report.json." if count > 0 else ""


def spread(rows: Sequence[Any], limit: int = 100) -> list[Any]:
    """Return at most `limit` of the rows, evenly spaced, including the first and the last."""
    if len(rows) <= limit:
        return list(rows)
    return [rows[round(index * (len(rows) - 1) / (limit - 1))] for index in range(limit)]


def yes_no(flag: bool) -> str:
    """Format a flag as a word, because not everyone sees colors."""
    return "yes" if flag else "no"


def moment(iso_date: str) -> str:
    """Format an ISO 8601 date in UTC, to the minute."""
    return f"{datetime.fromisoformat(iso_date):%Y-%m-%d %H:%M} UTC"


def dataset_name(name: str) -> str:
    """Return the name of a dataset as its authors write it."""
    return _DATASET_NAMES.get(name, plain(name))


def plain(text: Any, longest: int = _MAX_LETTERS) -> str:
    """Return untrusted text on one line of at most ``longest`` letters, without control or direction marks."""
    letters = str(text)[: 4 * longest]
    # Unicode categories C and Z contain control characters and separators.
    printable = "".join(" " if unicodedata.category(letter)[0] in "CZ" else letter for letter in letters)
    line = " ".join(printable.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def hosts(runs: Sequence["Run"]) -> str:
    """Return the hosts of several runs."""
    return joined(*dict.fromkeys(plain(run.hostname or "") for run in runs)) or "an unknown host"


def sentence(text: str) -> str:
    """Return the text with a full stop."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def joined(*texts: str) -> str:
    """Join the texts that are not empty with commas."""
    return ", ".join(filter(None, texts))


def is_fallback(run: "Entry") -> bool:
    """Return whether the run used another device than the requested one."""
    is_other = run.mismatch is not None or run.requested_device not in ("auto", run.effective_device)
    return is_other and run.status != SKIPPED


def has_groups(run: "Entry") -> bool:
    """Return whether test examples form groups of dependent ones. Errors that count single examples are too small."""
    return run.division is not None and run.division.by == "group"


def device_verified(run: "Entry") -> str:
    """Return whether the device is verified, with its name if it was not requested."""
    if run.device_verified and is_fallback(run):
        return f"yes, as {plain(run.effective_device)}"
    return yes_no(run.device_verified)


def device_note(run: "Entry", *, has_processes: bool = True) -> str:
    """Return the name of the device, and the numbers of replicas and processes above one."""
    replicas = f"{number(run.num_replicas)} replicas" if run.num_replicas > 1 else ""
    processes = f"{number(run.processes)} processes" if run.processes > 1 and has_processes else ""
    return joined(plain(run.device_name or ""), replicas, processes)


def named_device(run: "Entry") -> str:
    """Return the device with its note."""
    note = device_note(run)
    return f"{plain(run.effective_device)} ({note})" if note else plain(run.effective_device)


def data_phrase(run: "Entry") -> str:
    """Return the data for use in a sentence."""
    if run.is_placeholder:
        return f"placeholder data instead of {dataset_name(run.requested_dataset)}"
    verified = {"yes": " (verified)", "no": " (not verified)"}.get(data_verified(run), "")
    return f"{plain(run.dataset)}{verified}"


def data_verified(run: "Entry") -> str:
    """Return whether the data equal the original files, as "yes", "no", or "no reference"."""
    if not run.dataset_verified and run.dataset not in CONTENT_DIGESTS and not run.is_placeholder:
        return "no reference"
    return yes_no(run.dataset_verified)


def computed_in(run: "Entry") -> str:
    """Return the precision, and the backend if it is JAX."""
    precision = plain(run.precision)
    return f"{precision} by JAX" if run.backend == "jax" else precision


def remarks(run: "Run", *runs: "Run") -> tuple[str, ...]:
    """Return reasons for caution about a run, or about the row of these runs."""
    if run.status == SKIPPED:
        return (f"skipped: {plain(run.mismatch.cause, 200)}",)
    resumed = dict.fromkeys(_resumed_phrase(each, run) for one in runs or (run,) for each in one.resumed)
    reasons = {
        f"placeholder for {dataset_name(run.requested_dataset)}": run.is_placeholder,
        f"fallback from {plain(run.requested_device)}": is_fallback(run),
        "trained on another machine": run.fetched_from,
        plain(f"resumed {joined(*resumed)}", _MAX_RESUMED): resumed,
    }
    return tuple(reason for reason, applies in reasons.items() if applies)


def _resumed_phrase(resumption: "Resumption", run: "Entry") -> str:
    epoch = f"from epoch {number(resumption.epoch)}" if resumption.epoch <= run.epochs else "after the last epoch"
    return epoch if resumption.hostname in (None, run.hostname) else f"on host {plain(resumption.hostname)} {epoch}"


def model_and_recipe(run: "Entry") -> str:
    """Return the model, the recipe and the settings that override it, separated by " / "."""
    values = {name.replace("_", " "): getattr(run, name) for name in _OVERRIDES}
    changed = [f"{name} {value:g}" for name, value in values.items() if value >= 0]
    return " / ".join([plain(run.model), plain(run.training_recipe), *changed])


def inputs(run: "Entry") -> str:
    """Return height, width and channels of an image, or the length of a sequence. Empty if unknown."""
    shape = run.input_shape or ()
    if len(shape) == 1:
        return f"{run.units.examples} of {number(shape[0])}"
    return "×".join(map(number, shape))


def run_anchor(run: "Run") -> str:
    """Return the id of a run's entry on the page."""
    return f"run-{plain(run.fingerprint)[:12]}"


def run_name(run: "Run", current: Sequence[str] = ()) -> str:
    """Return the name of a run for legends."""
    effective, requested = plain(run.effective_device), plain(run.requested_device)
    device = effective if requested in ("auto", effective) else f"{requested} → {effective}"
    details = joined(device, computed_in(run), *remarks(run))
    identity = f"{plain(run.fingerprint)[:8]}, batch {number(run.global_batch_size)}, seed {number(run.seed)}"
    return f"{model_and_recipe(run)} on {details} ({joined(identity, 'requested' * (run.fingerprint in current))})"
