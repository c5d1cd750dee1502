"""Figures and runs as text: plain text on one line of bounded length, without control characters, not yet escaped."""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pipeline.records.reference import CONTENT_DIGESTS
from pipeline.runs.record import SKIPPED

if TYPE_CHECKING:
    from pipeline.report.data.reading import Entry, Resumption, Run


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation of a metric over runs. The deviation of a single run is None."""

    mean: float | None
    deviation: float | None


Figure = Spread | float | None

NO_FIGURE = "–"

_LONGEST = 80
_DATASET_NAMES = {"cifar10": "CIFAR-10", "tiny_shakespeare": "Tiny Shakespeare"}
# Settings of the recipe. Below 0: the recipe's own.
_OVERRIDES = ("learning_rate", "weight_decay", "label_smoothing")
_MOST_RESUMED = 3


def number(figure: Figure, decimals: int = 0, unit: str = "", scale: float = 1) -> str:
    """A figure times ``scale`` with thousands separators, and its standard deviation if there is one.

    A dash if it is missing or not finite.
    """
    if isinstance(figure, Spread):
        if figure.deviation is None:
            return number(figure.mean, decimals, unit, scale)
        return f"{number(figure.mean, decimals, '', scale)} ± {number(figure.deviation, decimals, unit, scale)}"
    value = math.nan if figure is None else figure * scale
    if not math.isfinite(value):
        return NO_FIGURE
    # A diverged loss of 1e38 would be wider than the page.
    return f"{value:,.{decimals}f}{unit}" if abs(value) < 1e12 else f"{value:.3g}{unit}"


def as_published(value: float | None) -> str:
    """A figure with the digits of its publication."""
    # More digits would be those of the binary fraction.
    return number(value) if value is None or not math.isfinite(value) else f"{value:,.12g}"


def percent(fraction: Figure, decimals: int = 1) -> str:
    """A fraction from 0 to 1 in percent."""
    return number(fraction, decimals, "%", 100)


def signed(value: float | None, decimals: int = 0, unit: str = "", scale: float = 1) -> str:
    """A difference with its sign."""
    text = number(value, decimals, unit, scale)
    return f"+{text}" if value is not None and math.isfinite(value) and value > 0 else text.replace("-", "−")


def points(fraction: float | None) -> str:
    """A difference of two fractions from 0 to 1, in percentage points."""
    return signed(fraction, 2, " points", 100)


def capitalized(text: str) -> str:
    """The text with a capital letter."""
    return text[:1].upper() + text[1:]


def plural(count: int, noun: str) -> str:
    """A count with its noun: "1 run", "3 runs"."""
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


def left_out(count: int, noun: str) -> str:
    """A note about entries that only report.json contains. Empty if there are none."""
    return f"{plural(count, noun)} in report.json." if count > 0 else ""


def spread(rows: Sequence[Any], limit: int = 100) -> list[Any]:
    """At most `limit` of the rows, evenly spaced, the first and the last among them."""
    if len(rows) <= limit:
        return list(rows)
    return [rows[round(place * (len(rows) - 1) / (limit - 1))] for place in range(limit)]


def yes_no(flag: bool) -> str:
    """A flag as a word. Color alone would not reach everyone."""
    return "yes" if flag else "no"


def moment(iso_date: str) -> str:
    """An ISO 8601 date in UTC, to the minute."""
    return f"{datetime.fromisoformat(iso_date):%Y-%m-%d %H:%M} UTC"


def dataset_name(name: str) -> str:
    """The name of a dataset, as its authors write it."""
    return _DATASET_NAMES.get(name, plain(name))


def plain(text: Any, longest: int = _LONGEST) -> str:
    """Untrusted text on one line of at most ``longest`` letters, without control or direction marks."""
    letters = str(text)[: 4 * longest]
    # Categories C and Z: control, format, surrogate; separators.
    kept = "".join(" " if unicodedata.category(letter)[0] in "CZ" else letter for letter in letters)
    line = " ".join(kept.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def hosts(hostnames: Sequence[str | None]) -> str:
    """The hosts of several runs, or their number if there are more than three."""
    known = list(dict.fromkeys(plain(name) for name in hostnames if name))
    if len(known) > 3:
        return plural(len(known), "host")
    return ", ".join(known) or "an unknown host"


def sentence(text: str) -> str:
    """The text with a full stop."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def joined(*parts: str) -> str:
    """The parts that are not empty, with commas."""
    return ", ".join(filter(None, parts))


def is_fallback(run: "Entry") -> bool:
    """Whether the run used another device than the requested one."""
    if run.status == SKIPPED:
        return False
    return run.mismatch is not None or run.requested_device not in ("auto", run.effective_device)


def device_verified(run: "Entry") -> str:
    """Whether the device is verified, with its name if it is not the requested one."""
    if run.device_verified and is_fallback(run):
        return f"yes, as {plain(run.effective_device)}"
    return yes_no(run.device_verified)


def devices(run: "Entry") -> str:
    """The name of the device, and the number of replicas if there are several."""
    replicas = f"{number(run.num_replicas)} replicas" if run.num_replicas > 1 else ""
    return joined(plain(run.device_name or ""), replicas)


def device_note(run: "Entry") -> str:
    """The name of the device, and the number of replicas and processes if there are several."""
    processes = f"{number(run.processes)} processes" if run.processes > 1 else ""
    return joined(devices(run), processes)


def named_device(run: "Entry") -> str:
    """The device with its note."""
    note = device_note(run)
    return f"{plain(run.effective_device)} ({note})" if note else plain(run.effective_device)


def device_phrase(run: "Entry") -> str:
    """The device within a sentence."""
    return named_device(run) if run.device_verified else f"unverified {named_device(run)}"


def data_phrase(run: "Entry") -> str:
    """The data within a sentence."""
    if run.is_placeholder:
        return f"placeholder data instead of {dataset_name(run.requested_dataset)}"
    verified = {"yes": " (verified)", "no": " (not verified)"}.get(data_verified(run), "")
    return f"{plain(run.dataset)}{verified}"


def data_verified(run: "Entry") -> str:
    """Whether the data have the content of the original files: "yes", "no", or "no reference"."""
    if not run.dataset_verified and run.dataset not in CONTENT_DIGESTS and not run.is_placeholder:
        return "no reference"
    return yes_no(run.dataset_verified)


def computed_in(run: "Entry") -> str:
    """The precision, and the backend if it is JAX."""
    precision = plain(run.precision)
    return f"{precision} by JAX" if run.backend == "jax" else precision


def remarks(run: "Entry", resumed: Sequence["Resumption"] = ()) -> tuple[str, ...]:
    """Reasons why the metrics of a run or a row need care. ``resumed``: the processes that resumed its runs."""
    if run.status == SKIPPED:
        return (f"skipped: {plain(run.mismatch.cause, 200)}",)
    found = []
    if run.is_placeholder:
        found.append(f"placeholder for {dataset_name(run.requested_dataset)}")
    if is_fallback(run):
        found.append(f"fallback from {plain(run.requested_device)}")
    if run.fetched_from:
        found.append("trained on another machine")
    if resumed:
        found.append(_resumed_phrase(resumed, run.epochs))
    return tuple(found)


def _resumed_phrase(resumed: Sequence["Resumption"], epochs: int) -> str:
    places = []
    for one in resumed:
        after = f"from epoch {number(one.epoch)}" if one.epoch <= epochs else "after the last epoch"
        places.append(f"on {plain(one.hostname or 'an unknown host')} {after}")
    places = list(dict.fromkeys(places))
    more = f"and {len(places) - _MOST_RESUMED} more" if len(places) > _MOST_RESUMED else ""
    return f"resumed {joined(*places[:_MOST_RESUMED], more)}"


def model_and_recipe(run: "Entry") -> str:
    """Model, recipe and the settings that override the recipe, with " / " between them."""
    values = {name.replace("_", " "): getattr(run, name) for name in _OVERRIDES}
    changed = [f"{name} {value:g}" for name, value in values.items() if value >= 0]
    return " / ".join([plain(run.model), plain(run.training_recipe), *changed])


def inputs(run: "Entry") -> str:
    """Height, width and channels of an image, or the length of a sequence. Empty if unknown."""
    shape = run.input_shape or ()
    if len(shape) == 1:
        return f"{run.units.examples} of {number(shape[0])}"
    return "×".join(map(number, shape))


def mark(fingerprints: Sequence[str], current: Sequence[str]) -> str:
    """The mark of a row with requested runs."""
    if not set(fingerprints) & set(current):
        return ""
    return "this run" if len(current) == len(fingerprints) == 1 else "requested"


def run_name(run: "Run", current: Sequence[str] = ()) -> str:
    """A run in the legend of the curves."""
    used, asked = plain(run.effective_device), plain(run.requested_device)
    device = used if asked in ("auto", used) else f"{asked} → {used}"
    where = joined(device, computed_in(run), *remarks(run, run.resumed))
    which = f"{plain(run.fingerprint)[:8]}, batch {number(run.global_batch_size)}, seed {number(run.seed)}"
    return f"{model_and_recipe(run)} on {where} ({joined(which, mark([run.fingerprint], current))})"
