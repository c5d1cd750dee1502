"""Differences between two runs, from settings to metrics, as a table."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.artifacts.manifest import MANIFEST_NAME, read_manifest
from pipeline.report.blocks import Table, words
from pipeline.report.data.reading import leaves, read_run
from pipeline.report.data.scenarios import differing, facts
from pipeline.report.formats import MISSING, device_verified, plain, yes_no
from pipeline.runs.record import names
from pipeline.settings.training import OF_THE_RECIPE

_DIGEST_LETTERS = 12


class Difference(NamedTuple):
    """A fact that differs between two runs. None for a run without it."""

    section: str
    name: str
    first: Any
    second: Any


def compare_runs(first_folder: Path, second_folder: Path) -> list[Difference]:
    """Return the differences of the runs in two folders, settings first, metrics last. Raises DamagedArtifactError."""
    pair = [_facts(folder) for folder in (first_folder, second_folder)]
    first, second = (dict(leaves(sections, containers=Mapping)) for sections in pair)
    # A run without a manifest has no section for code.
    paths = sorted(differing((first, second)), key=lambda path: [*pair[0]].index(path[0]))
    return [Difference(path[0], ".".join(path[1:]), first.get(path), second.get(path)) for path in paths]


def difference_table(differences: Sequence[Difference], names: tuple[str, str]) -> Table:
    """Return the differences of two runs with these names."""
    rows = [(one.section.upper(), plain(one.name), _show(one.first), _show(one.second)) for one in differences]
    return Table(words("", "", *map(plain, names)), rows, head=1)


def _facts(folder: Path) -> dict[str, Any]:
    run = read_run(folder)
    identity = read_manifest(folder)["identity"] if (folder / MANIFEST_NAME).exists() else {}
    receipt, evaluation = run.receipt or {}, run.evaluation
    versions = receipt.get("versions")
    evidence = {"device_verified": device_verified(run), "device_reason": run.device_reason}
    return {
        # The manifest names these as the settings do.
        "settings": identity.get("settings") or facts(run, names("setting")),
        "data": facts(run, names("data")),
        "code": identity.get("code", {}),
        "versions": identity.get("packages", {}) | (versions if isinstance(versions, Mapping) else {}),
        "hardware": facts(run, names("hardware", "computation")) | evidence,
        "host": facts(run, ("hostname", "fetched_from")) | {name: receipt.get(name) for name in ("host", "flags")},
        "metrics": facts(run, ("status", *names("measured")))
        | {"expected_calibration_error": getattr(evaluation, "expected_calibration_error", None)},
    }


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return yes_no(value)
    if isinstance(value, float):
        # About four significant digits.
        digits = 4 if abs(value) < 1 else 2 if abs(value) < 1_000 else 0
        return "recipe" if value == OF_THE_RECIPE else f"{value:,.{digits}f}"
    if isinstance(value, int):
        return f"{value:,}"
    text = MISSING if value is None else plain(", ".join(map(str, value)) if isinstance(value, list) else value, 60)
    is_digest = len(text) in (16, 64) and set(text) <= set("0123456789abcdef")
    return text[:_DIGEST_LETTERS] if is_digest else text
