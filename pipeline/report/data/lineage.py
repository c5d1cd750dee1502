"""What the storage root knows about a run: its lineage, its export and whether it came out the same again.

Settings, versions and seconds of an artifact that is not under this root are unknown.
"""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.artefacts import layout
from pipeline.artefacts.manifest import MANIFEST_NAME, read_manifest
from pipeline.errors import DamagedArtefactError
from pipeline.runs.determinism import read_determinism
from pipeline.runs.metrics import EXPORT_NAME, weights_digest
from pipeline.runs.untrusted import Count, Figure, Untrusted, checked, read_text

_DIGITS_IN_NAME = 12

_logger = logging.getLogger(__name__)


class _Form(Untrusted):
    bytes: Count
    accuracy: Figure
    agreement: Figure
    largest_difference: Figure


class _Exported(Untrusted):
    num_examples: Count
    forms: dict[str, _Form]


def lineage(run_folder: Path, run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The artifacts of a run, the source first, the run itself last.

    Each has `stage`, `artefact` (its folder's name), `fingerprint`, `settings`, `packages`, `seconds` and `made_at`.
    All but the first three are None if its manifest is not under this root.
    """
    root = run_folder.parent.parent
    own = _manifest(run_folder)
    made_from = run["records_fingerprint"]
    records = next(_manifests(root / "records", fingerprint=made_from), None)
    source = next(_manifests(root / "source", source=_part(records and records[1], "upstream")), None)
    nodes = [
        _node("Source", *(source or (None, None))),
        _node("Records", *(records or (None, None)), fingerprint=made_from),
        _with_initial_run(_node("Train", run_folder.name if own else None, own, fingerprint=run["fingerprint"]), run),
    ]
    return [node for node in nodes if node["fingerprint"] is not None]


def _with_initial_run(node: dict[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """The node of a run with the run whose weights it began with, which is no setting: their content is upstream."""
    if not run["initial_run"] or node["settings"] is None:
        return node
    return {**node, "settings": {**node["settings"], "initial_run": run["initial_run"][:_DIGITS_IN_NAME]}}


def exported(run_folder: Path, run: Mapping[str, Any]) -> dict[str, Any] | None:
    """The forms of the newest export of a run's weights. None if there is none under this root.

    Raises:
        DamagedArtefactError: its export.json is damaged.
    """
    exports, own = run_folder.parent.parent / "exports", _manifest(run_folder)
    # A run that was trained anew may have other weights.
    trained = {"run": run["fingerprint"], "weights": own and weights_digest(own)}
    name = next((name for name, manifest in _manifests(exports) if _part(manifest, "upstream") == trained), None)
    if name is None:
        return None
    path = exports / name / EXPORT_NAME
    return checked(_Exported, read_text(path), path).model_dump()


def stages(lineages: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The lineages of several runs as one graph: each stage with its artifacts, shared ones once."""
    found: dict[str, dict[str, Any]] = {name: {} for name in ("Source", "Records", "Train")}
    for node in (node for nodes in lineages for node in nodes):
        found[node["stage"]].setdefault(node["fingerprint"], node)
    return [{"stage": name, "artefacts": [*nodes.values()]} for name, nodes in found.items() if nodes]


def repetition(run_folder: Path) -> dict[str, Any] | None:
    """The result of training a run again, for its present weights. None if nobody did, or the file is damaged.

    `is_identical`, and the `trainings` with `weights_sha256`, `finished_at`, `hostname` and `device_name`.
    """
    try:
        found = read_determinism(run_folder)
    except DamagedArtefactError as error:
        _logger.warning("left out of the report: %s", error)
        return None
    return found and {
        "is_identical": found.is_identical,
        "trainings": [training.model_dump() for training in (found.first, *found.again)],
    }


def _node(
    stage: str, name: str | None, manifest: Mapping[str, Any] | None, *, fingerprint: str | None = None
) -> dict[str, Any]:
    fingerprint = manifest["fingerprint"] if manifest else fingerprint
    label = name.rpartition("-")[0] if name else stage.lower()
    return {
        "stage": stage,
        "artefact": f"{label}-{fingerprint[:_DIGITS_IN_NAME]}" if fingerprint else None,
        "fingerprint": fingerprint,
        "settings": _part(manifest, "settings") if manifest else None,
        "packages": _part(manifest, "packages") if manifest else None,
        "seconds": manifest.get("seconds") if manifest else None,
        "made_at": manifest.get("created_at") if manifest else None,
    }


def _manifests(kind: Path, **facts: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and manifest of each artefact whose manifest says all of the facts; the newest first."""
    known = [(folder.name, _manifest(folder)) for folder in filter(_is_published, layout.artefact_folders(kind))]
    fitting = [
        (name, manifest)
        for name, manifest in known
        if manifest and all(value and manifest.get(fact) == value for fact, value in facts.items())
    ]
    yield from sorted(fitting, key=lambda found: found[1]["created_at"], reverse=True)


def _manifest(folder: Path) -> dict[str, Any] | None:
    try:
        return read_manifest(folder)
    except DamagedArtefactError:
        return None


def _part(manifest: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    identity = (manifest or {}).get("identity")
    part = identity.get(name) if isinstance(identity, Mapping) else None
    return part if isinstance(part, Mapping) else {}


def _is_published(folder: Path) -> bool:
    return (folder / MANIFEST_NAME).is_file()
