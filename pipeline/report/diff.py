"""Differences between two runs, from settings to metrics, as a table."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.artifacts.manifest import MANIFEST_NAME, read_manifest
from pipeline.report.blocks import Group, Table, numbers, words
from pipeline.report.data.reading import read_run
from pipeline.report.data.scenarios import differing, facts
from pipeline.report.formats import MISSING, device_verified, plain, signed, yes_no
from pipeline.runs.record import names

_DIGEST_LETTERS = 12


class Difference(NamedTuple):
    """A fact that differs between two runs. None for a run without it."""

    section: str
    name: str
    first: Any
    second: Any


def compare_runs(first_folder: Path, second_folder: Path) -> list[Difference]:
    """Return the differences of the runs in two folders, settings first, metrics last.

    Raises:
        DamagedArtifactError: A folder contains no run or a damaged one.
    """
    pair = [_facts(folder) for folder in (first_folder, second_folder)]
    first, second = (dict(_leaves(sections)) for sections in pair)
    differences = [
        Difference(path[0], ".".join(path[1:]), first.get(path), second.get(path))
        for path in differing((first, second))
    ]
    # A run without a manifest has no section for code.
    order = list(pair[0])
    return sorted(differences, key=lambda difference: order.index(difference.section))


def difference_table(differences: Sequence[Difference], names: tuple[str, str]) -> Table:
    """Return the differences of two runs with these names, by section."""
    columns = [*words("", *map(plain, names)), *numbers("change")]
    groups = groupby(differences, key=lambda difference: difference.section)
    return Table(columns, groups=[Group(section.upper(), [*map(_cells, rows)]) for section, rows in groups])


def _cells(difference: Difference) -> list[str]:
    return [plain(difference.name), _show(difference.first), _show(difference.second), _change(difference)]


def _facts(folder: Path) -> dict[str, Any]:
    run = read_run(folder)
    identity = read_manifest(folder)["identity"] if (folder / MANIFEST_NAME).exists() else {}
    receipt, evaluation = run.receipt or {}, run.evaluation
    # Objects such as the receipt are compared field by field elsewhere.
    evidence = {
        name: value for name, value in facts(run, names("evidence")).items() if not isinstance(value, dict | list)
    }
    versions = receipt.get("versions")
    return {
        # The manifest names these as the settings do.
        "settings": identity.get("settings") or facts(run, names("setting")),
        "data": facts(run, names("data")),
        "code": identity.get("code", {}),
        "versions": identity.get("packages", {}) | (versions if isinstance(versions, Mapping) else {}),
        "hardware": facts(run, names("hardware", "computation")) | evidence | {"device_verified": device_verified(run)},
        "host": facts(run, ("hostname", "fetched_from")) | {name: receipt.get(name) for name in ("host", "flags")},
        "metrics": facts(run, ("status", *names("measured")))
        | {"expected_calibration_error": getattr(evaluation, "expected_calibration_error", None)},
    }


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (path, value) of each leaf. A list is a leaf, because its indices have no meaning."""
    if not isinstance(value, Mapping):
        yield path, value
        return
    for name, child in value.items():
        yield from _leaves(child, (*path, str(name)))


def _change(difference: Difference) -> str:
    """Return the change of a metric."""
    values = (difference.first, difference.second)
    are_numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if difference.section != "metrics" or not are_numbers:
        return ""
    change = difference.second - difference.first
    return signed(change, _decimals(change))


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return yes_no(value)
    if isinstance(value, float):
        return f"{value:,.{_decimals(value)}f}"
    if isinstance(value, int):
        return f"{value:,}"
    text = MISSING if value is None else plain(", ".join(map(str, value)) if isinstance(value, list) else value, 60)
    is_digest = len(text) in (16, 64) and set(text) <= set("0123456789abcdef")
    return text[:_DIGEST_LETTERS] if is_digest else text


def _decimals(value: float) -> int:
    # About four significant digits.
    return 4 if abs(value) < 1 else 2 if abs(value) < 1_000 else 0
