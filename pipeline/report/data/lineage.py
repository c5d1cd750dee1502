"""Artifacts that runs depend on, and their exports, from the manifests under the storage root."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.artifacts import layout
from pipeline.artifacts.manifest import read_manifest
from pipeline.errors import DamagedArtifactError
from pipeline.report.data.reading import Run
from pipeline.runs.metrics import EXPORT_NAME, weights_digest
from pipeline.runs.validation import Count, Number, Untrusted, checked, read_text

_STAGES = ("Source", "Records", "Train")


class Form(Untrusted):
    """An exported format, compared with the Keras model on the test split, and its speed on the exporting machine."""

    bytes: Count
    accuracy: Number
    agreement: Number
    largest_difference: Number
    # None for exports of version 0.2.
    milliseconds: Number = None
    examples_per_second: Number = None


class Exported(Untrusted):
    """The exported formats of a run by name."""

    num_examples: Count
    forms: dict[str, Form]


@dataclass(frozen=True)
class Artifact:
    """An artifact of a stage by the name of its folder. Facts of the manifest are None if it is not under this root."""

    stage: str
    artifact: str
    fingerprint: str
    settings: Mapping[str, Any] | None = None
    packages: Mapping[str, Any] | None = None
    seconds: float | None = None
    made_at: str | None = None


def lineage(runs: Sequence[tuple[Path, Run]]) -> list[Artifact]:
    """Return the artifacts that the runs depend on, without duplicates, by stage."""
    artifacts: dict[str, Artifact] = {}
    for folder, run in runs:
        root = folder.parent.parent
        records = _newest(root / layout.RECORDS, "fingerprint", run.records_fingerprint)
        source = _newest(root / layout.SOURCE, "source", records.get("identity", {}).get("upstream"))
        manifests = source, records, _manifest(folder)
        fingerprints = None, run.records_fingerprint, run.fingerprint
        for stage, manifest, fingerprint in zip(_STAGES, manifests, fingerprints, strict=True):
            if name := manifest.get("fingerprint", fingerprint):
                label = manifest["folder"].name.rpartition("-")[0] if manifest else stage.lower()
                facts = [manifest.get("identity", {}).get(section) for section in ("settings", "packages")]
                facts += manifest.get("seconds"), manifest.get("created_at")
                artifacts.setdefault(name, Artifact(stage, f"{label}-{name[:12]}", name, *facts))
    return sorted(artifacts.values(), key=lambda artifact: _STAGES.index(artifact.stage))


def exported(run_folder: Path, run: Run) -> Exported | None:
    """Return the newest export of a run's weights, None if this root contains none. Raises DamagedArtifactError."""
    manifest = _manifest(run_folder)
    # A retrained run may have other weights.
    identity = {"run": run.fingerprint, "weights": weights_digest(manifest) if manifest else None}
    if not (export := _newest(run_folder.parent.parent / layout.EXPORTS, "upstream", identity)):
        return None
    path = export["folder"] / EXPORT_NAME
    return checked(Exported, read_text(path), path)


def _newest(kind: Path, name: str, value: object) -> Mapping[str, Any]:
    """Return the newest manifest that has this value, itself or in its identity, or {}."""
    manifests = [_manifest(folder) for folder in layout.artifact_folders(kind)]
    matches = [item for item in manifests if item and value and {**item["identity"], **item}.get(name) == value]
    return max(matches, key=lambda item: item["created_at"], default={})


def _manifest(folder: Path) -> dict[str, Any]:
    """Return a manifest with its ``folder``, or {} if it is missing or damaged."""
    try:
        return {**read_manifest(folder), "folder": folder}
    except DamagedArtifactError:
        return {}
