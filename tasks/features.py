"""The features of a frozen backbone, an artifact that the process of a training writes.

It is not a stage, because the model is on its device only then. Runs with other seeds or epochs read the same artifact.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.artifacts import layout
from pipeline.settings.training import FULL, PRETRAINED
from tasks import remote_cache
from tasks.stage import Stage
from tasks.status import Status

if TYPE_CHECKING:
    from pipeline.training.launch import FeaturesArtifact
    from tasks.train import Train

# Settings of [Train] that change the features.
_SETTINGS = ("model", "backend", "device", "precision", "jit_compile")


class Features:
    """The features for a run, with the attributes of a stage that the commands use."""

    task_family, kind = "Features", layout.FEATURES
    is_shared, is_renewed = True, False
    output, status, experiment_name = Stage.output, Stage.status, Stage.experiment_name
    can_be_fetched, is_forced, is_final, push = Stage.can_be_fetched, Stage.is_forced, Stage.is_final, Stage.push

    def __init__(self, train: "Train") -> None:
        """Describe the features for a run whose inputs are known."""
        self.train, self.root, self.inputs = train, train.root, train.inputs
        self.force, self.label = train.force, train.label
        self.param_kwargs = {name: getattr(train.settings, name) for name in _SETTINGS}

    def identity(self) -> dict:
        """Everything the artifact is made from."""
        return {**self.train.identity(), "settings": self.param_kwargs}

    def local_status(self) -> Status:
        """State of the artifact here, and the reasons."""
        return self.output().status()

    def fetch(self) -> "FeaturesArtifact":
        """Download the artifact if only the remote has it. Return the arguments of the training."""
        # It imports the schemas of a run.
        from pipeline.training.launch import FeaturesArtifact

        artifact = self.output()
        if self.status().remote:
            remote_cache.shared().get(self.kind, artifact.expected, artifact.folder)
        return FeaturesArtifact(folder=artifact.folder, identity=artifact.identity, experiment=artifact.experiment)


def features_of(train: "Train") -> Features | None:
    """The features for a run. None if it needs none, or its inputs are not known."""
    is_known = train.is_resolved() and train.initial and train.settings.model in PRETRAINED
    return Features(train) if is_known and train.fine_tune != FULL else None


def with_features(stages: Sequence[Stage]) -> list["Stage | Features"]:
    """The stages, and before each training the features that it would read or has written."""
    found: dict[str, Stage | Features] = {}
    for stage in stages:
        features = features_of(stage) if stage.kind == layout.RUNS else None
        # A finished run needs none.
        if features and (features.output().folder.is_dir() or not stage.local_status().is_fresh):
            found[features.output().expected] = features
        found[str(id(stage))] = stage
    return list(found.values())
