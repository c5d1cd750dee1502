"""Lineage and export of a run, from the artifacts under its storage root.

Settings, versions and seconds are unknown for an artifact that is not under this root.
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
from pipeline.runs.validation import Count, Number, Untrusted, checked, read_text

_DIGITS_IN_NAME = 12


class Form(Untrusted):
    """An exported format, compared with the Keras model on the test split."""

    bytes: Count
    accuracy: Number
    agreement: Number
    largest_difference: Number


class Exported(Untrusted):
    """The exported formats of a run by name."""

    num_examples: Count
    forms: dict[str, Form]


@dataclass(frozen=True)
class Artifact:
    """An artifact of a stage. Fields of the manifest are None if it is not under this root.

    ``artifact`` is the name of its folder.
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
    """Return the stages with the artifacts that the runs depend on, without duplicates."""
    artifacts_by_stage: dict[str, dict[str, Artifact]] = {"Source": {}, "Records": {}, "Train": {}}
    for folder, run in runs:
        root = folder.parent.parent
        records = _newest(root / layout.RECORDS, "fingerprint", run.records_fingerprint)
        source = _newest(root / layout.SOURCE, "source", _identity_section(records, "upstream"))
        train = _artifact("Train", _manifest(folder), run.fingerprint)
        if run.initial_run and train.settings is not None:
            # The identity refers to the weights by content, not by a setting.
            train = replace(train, settings={**train.settings, "initial_run": run.initial_run[:_DIGITS_IN_NAME]})
        artifacts = (_artifact("Source", source), _artifact("Records", records, run.records_fingerprint), train)
        for artifact in filter(None, artifacts):
            artifacts_by_stage[artifact.stage].setdefault(artifact.fingerprint, artifact)
    return [Stage(name, [*artifacts.values()]) for name, artifacts in artifacts_by_stage.items() if artifacts]


def exported(run_folder: Path, run: Run) -> Exported | None:
    """Return the newest export of a run's weights, None if this root contains none.

    Raises:
        DamagedArtifactError: The file export.json is damaged.
    """
    manifest = _manifest(run_folder)
    # A retrained run may have other weights.
    identity = {"run": run.fingerprint, "weights": weights_digest(manifest) if manifest else None}
    if not (export := _newest(run_folder.parent.parent / layout.EXPORTS, "upstream", identity)):
        return None
    path = export["folder"] / EXPORT_NAME
    return checked(Exported, read_text(path), path)


def _artifact(stage: str, manifest: Mapping[str, Any], fingerprint: str | None = None) -> Artifact | None:
    """Return an artifact by its manifest or else its fingerprint, None without both."""
    if not manifest:
        return fingerprint and Artifact(stage, f"{stage.lower()}-{fingerprint[:_DIGITS_IN_NAME]}", fingerprint)
    return Artifact(
        stage,
        f"{manifest['folder'].name.rpartition('-')[0]}-{manifest['fingerprint'][:_DIGITS_IN_NAME]}",
        manifest["fingerprint"],
        _identity_section(manifest, "settings"),
        _identity_section(manifest, "packages"),
        manifest.get("seconds"),
        manifest.get("created_at"),
    )


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


def _identity_section(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = manifest.get("identity", {}).get(name)
    return section if isinstance(section, Mapping) else {}
