"""Artifacts under a storage root that belong to a run: its lineage and export.

Settings, versions and seconds of an artifact that is not under this root are unknown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.artifacts import layout
from pipeline.artifacts.manifest import read_manifest
from pipeline.errors import DamagedArtifactError
from pipeline.report.data.reading import Run
from pipeline.runs.metrics import EXPORT_NAME, weights_digest
from pipeline.runs.validation import Count, Figure, Untrusted, checked, read_text

_DIGITS_IN_NAME = 12


class Form(Untrusted):
    """An exported form, compared with the Keras model on the test split."""

    bytes: Count
    accuracy: Figure
    agreement: Figure
    largest_difference: Figure


class Exported(Untrusted):
    """The exported forms of a run by name."""

    num_examples: Count
    forms: dict[str, Form]


@dataclass(frozen=True)
class Artifact:
    """An artifact of a stage. What its manifest says is None if that is not under this root.

    ``artifact``: the name of its folder.
    """

    stage: str
    artifact: str
    fingerprint: str
    settings: Mapping[str, Any] | None = None
    packages: Mapping[str, Any] | None = None
    seconds: float | None = None
    made_at: str | None = None


@dataclass(frozen=True)
class Stage:
    """A stage with its artifacts."""

    stage: str
    artifacts: list[Artifact]


def lineage(runs: Sequence[tuple[Path, Run]]) -> list[Stage]:
    """The stages with the artifacts that the runs in these folders come from, shared ones once."""
    found: dict[str, dict[str, Artifact]] = {"Source": {}, "Records": {}, "Train": {}}
    for folder, run in runs:
        root = folder.parent.parent
        records = _newest(root / layout.RECORDS, "fingerprint", run.records_fingerprint)
        source = _newest(root / layout.SOURCE, "source", _part(records, "upstream"))
        own = _artifact("Train", _manifest(folder), run.fingerprint)
        if run.initial_run and own.settings is not None:
            # No setting: the content of the weights is upstream.
            own = replace(own, settings={**own.settings, "initial_run": run.initial_run[:_DIGITS_IN_NAME]})
        artifacts = (_artifact("Source", source), _artifact("Records", records, run.records_fingerprint), own)
        for artifact in filter(None, artifacts):
            found[artifact.stage].setdefault(artifact.fingerprint, artifact)
    return [Stage(name, [*artifacts.values()]) for name, artifacts in found.items() if artifacts]


def exported(run_folder: Path, run: Run) -> Exported | None:
    """The forms of the newest export of a run's weights. None if there is none under this root.

    Raises:
        DamagedArtifactError: Its export.json is damaged.
    """
    own = _manifest(run_folder)
    # A run that was trained again may have other weights.
    trained = {"run": run.fingerprint, "weights": weights_digest(own) if own else None}
    if not (export := _newest(run_folder.parent.parent / layout.EXPORTS, "upstream", trained)):
        return None
    path = export["folder"] / EXPORT_NAME
    return checked(Exported, read_text(path), path)


def _artifact(stage: str, manifest: Mapping[str, Any], fingerprint: str | None = None) -> Artifact | None:
    """An artifact by its manifest, or by its fingerprint alone. None if neither is known."""
    if not manifest:
        return fingerprint and Artifact(stage, f"{stage.lower()}-{fingerprint[:_DIGITS_IN_NAME]}", fingerprint)
    return Artifact(
        stage,
        f"{manifest['folder'].name.rpartition('-')[0]}-{manifest['fingerprint'][:_DIGITS_IN_NAME]}",
        manifest["fingerprint"],
        _part(manifest, "settings"),
        _part(manifest, "packages"),
        manifest.get("seconds"),
        manifest.get("created_at"),
    )


def _newest(kind: Path, name: str, value: object) -> Mapping[str, Any]:
    """The manifest of the newest artifact whose manifest or identity has this value. Empty if there is none."""
    known = [_manifest(folder) for folder in layout.artifact_folders(kind)]
    fitting = [one for one in known if one and value and {**one["identity"], **one}.get(name) == value]
    return max(fitting, key=lambda one: one["created_at"], default={})


def _manifest(folder: Path) -> dict[str, Any]:
    """A manifest with its ``folder``. Empty if there is none, or a damaged one."""
    try:
        return {**read_manifest(folder), "folder": folder}
    except DamagedArtifactError:
        return {}


def _part(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = manifest.get("identity", {}).get(name)
    return part if isinstance(part, Mapping) else {}
