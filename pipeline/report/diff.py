"""Diff: the differences between two runs, from their settings to their metrics, as a table."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.artifacts.manifest import MANIFEST_NAME, read_manifest
from pipeline.report.blocks import Group, Table, figures, words
from pipeline.report.data.reading import read_run
from pipeline.report.data.scenarios import facts
from pipeline.report.formats import NO_FIGURE, device_verified, plain, signed, yes_no
from pipeline.runs.record import names

_DIGEST_LETTERS = 12


class Difference(NamedTuple):
    """A fact that differs. None where it is not known of a run."""

    section: str
    name: str
    one: Any
    other: Any


def compare_runs(one: Path, other: Path) -> list[Difference]:
    """The differences of the runs in two folders, settings first, metrics last.

    Raises:
        DamagedArtifactError: A folder contains no run, or a damaged one.
    """
    pair = [_facts(folder) for folder in (one, other)]
    first, second = (dict(_leaves(sections)) for sections in pair)
    found = [
        Difference(path[0], ".".join(path[1:]), first.get(path), second.get(path))
        for path in dict.fromkeys((*first, *second))
        if first.get(path) != second.get(path)
    ]
    # The leaves of one run may lack a section: without a manifest it has no code.
    order = list(pair[0])
    return sorted(found, key=lambda difference: order.index(difference.section))


def difference_table(differences: Sequence[Difference], names: tuple[str, str]) -> Table:
    """The differences of two runs of these names, by sections."""
    columns = [*words("", *map(plain, names)), *figures("change")]
    groups = groupby(differences, key=lambda one: one.section)
    return Table(columns, groups=[Group(section.upper(), [*map(_cells, found)]) for section, found in groups])


def _cells(one: Difference) -> list[str]:
    return [plain(one.name), _show(one.one), _show(one.other), _change(one)]


def _facts(folder: Path) -> dict[str, Any]:
    run = read_run(folder)
    identity = read_manifest(folder)["identity"] if (folder / MANIFEST_NAME).exists() else {}
    receipt, evaluation = run.receipt or {}, run.evaluation
    # Objects, as the receipt, are compared by parts elsewhere.
    evidence = {
        name: value for name, value in facts(run, names("evidence")).items() if not isinstance(value, dict | list)
    }
    versions = receipt.get("versions")
    return {
        # In a manifest these have their names in the settings.
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
    """(path, value) of each leaf. A list is a leaf: its places mean nothing by themselves."""
    if not isinstance(value, Mapping):
        yield path, value
        return
    for name, child in value.items():
        yield from _leaves(child, (*path, str(name)))


def _change(one: Difference) -> str:
    """The change of a measured figure."""
    values = (one.one, one.other)
    known = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if one.section != "metrics" or not known:
        return ""
    change = one.other - one.one
    return signed(change, _decimals(change))


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return yes_no(value)
    if isinstance(value, float):
        return f"{value:,.{_decimals(value)}f}"
    if isinstance(value, int):
        return f"{value:,}"
    text = NO_FIGURE if value is None else plain(", ".join(map(str, value)) if isinstance(value, list) else value, 60)
    is_digest = len(text) in (16, 64) and set(text) <= set("0123456789abcdef")
    return text[:_DIGEST_LETTERS] if is_digest else text


def _decimals(figure: float) -> int:
    # About four digits.
    return 4 if abs(figure) < 1 else 2 if abs(figure) < 1_000 else 0
