"""Artifacts under a storage root that belong to a run: its lineage, export and repetition.

Settings, versions and seconds of an artifact that is not under this root are unknown.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.artefacts import layout
from pipeline.artefacts.manifest import read_manifest
from pipeline.errors import DamagedArtefactError
from pipeline.report.data.reading import or_none
from pipeline.report.formats import Run
from pipeline.runs.determinism import read_determinism
from pipeline.runs.metrics import EXPORT_NAME, weights_digest
from pipeline.runs.untrusted import Count, Figure, Untrusted, checked, read_text

_DIGITS_IN_NAME = 12


class _Form(Untrusted):
    bytes: Count
    accuracy: Figure
    agreement: Figure
    largest_difference: Figure


class _Exported(Untrusted):
    num_examples: Count
    forms: dict[str, _Form]


def lineage(runs: Sequence[tuple[Path, Run]]) -> list[dict[str, Any]]:
    """The stages with the artifacts that the runs in these folders come from, shared ones once.

    Each artifact has `stage`, `artefact` (its folder's name), `fingerprint`, `settings`, `packages`, `seconds` and
    `made_at`. All but the first three are None if its manifest is not under this root.
    """
    found: dict[str, dict[str, Any]] = {"Source": {}, "Records": {}, "Train": {}}
    for folder, run in runs:
        root, made_from = folder.parent.parent, run["records_fingerprint"]
        records = _newest(root / layout.RECORDS, "fingerprint", made_from)
        source = _newest(root / layout.SOURCE, "source", _part(records, "upstream"))
        own = _node("Train", _manifest(folder), run["fingerprint"])
        if run["initial_run"] and own["settings"] is not None:
            # No setting: the content of the weights is upstream.
            own["settings"] = {**own["settings"], "initial_run": run["initial_run"][:_DIGITS_IN_NAME]}
        for node in (_node("Source", source, None), _node("Records", records, made_from), own):
            if node["fingerprint"] is not None:
                found[node["stage"]].setdefault(node["fingerprint"], node)
    return [{"stage": name, "artefacts": [*nodes.values()]} for name, nodes in found.items() if nodes]


def exported(run_folder: Path, run: Run) -> dict[str, Any] | None:
    """The forms of the newest export of a run's weights. None if there is none under this root.

    Raises:
        DamagedArtefactError: Its export.json is damaged.
    """
    own = _manifest(run_folder)
    # A run that was trained again may have other weights.
    trained = {"run": run["fingerprint"], "weights": weights_digest(own) if own else None}
    if not (export := _newest(run_folder.parent.parent / layout.EXPORTS, "upstream", trained)):
        return None
    path = export["folder"] / EXPORT_NAME
    return checked(_Exported, read_text(path), path).model_dump()


def repetition(run_folder: Path) -> dict[str, Any] | None:
    """The result of training a run again, for its present weights. None if nobody did, or the file is damaged.

    `is_identical`, and the `trainings` with `weights_sha256`, `finished_at`, `hostname` and `device_name`.
    """
    found = or_none(read_determinism, run_folder)
    return found and {
        "is_identical": found.is_identical,
        "trainings": [training.model_dump() for training in (found.first, *found.again)],
    }


def _node(stage: str, manifest: Mapping[str, Any], fingerprint: str | None) -> dict[str, Any]:
    """An artifact of the lineage. Without a manifest, all but its ``fingerprint`` is unknown."""
    fingerprint = manifest.get("fingerprint", fingerprint)
    label = manifest["folder"].name.rpartition("-")[0] if manifest else stage.lower()
    return {
        "stage": stage,
        "artefact": f"{label}-{fingerprint[:_DIGITS_IN_NAME]}" if fingerprint else None,
        "fingerprint": fingerprint,
        "settings": _part(manifest, "settings") if manifest else None,
        "packages": _part(manifest, "packages") if manifest else None,
        "seconds": manifest.get("seconds"),
        "made_at": manifest.get("created_at"),
    }


def _newest(kind: Path, name: str, value: object) -> Mapping[str, Any]:
    """The manifest of the newest artifact whose manifest or identity has this value. Empty if there is none."""
    known = [_manifest(folder) for folder in layout.artefact_folders(kind)]
    fitting = [one for one in known if one and value and {**one["identity"], **one}.get(name) == value]
    return max(fitting, key=lambda one: one["created_at"], default={})


def _manifest(folder: Path) -> dict[str, Any]:
    """A manifest with its ``folder``. Empty if there is none, or a damaged one."""
    try:
        return {**read_manifest(folder), "folder": folder}
    except DamagedArtefactError:
        return {}


def _part(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = manifest.get("identity", {}).get(name)
    return part if isinstance(part, Mapping) else {}
