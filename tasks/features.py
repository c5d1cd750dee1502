"""The features of a frozen backbone, an artifact that the process of a training writes.

It is not a stage, because the model is on its device only then. Runs with other seeds or epochs read the same artifact.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.artifacts import layout
from pipeline.artifacts.manifest import read_fetched
from pipeline.settings.training import FULL, PRETRAINED
from tasks import remote_cache
from tasks.settings import Storage, root_folder
from tasks.stage import Stage, stages_up_to
from tasks.status import Artifact, Status

if TYPE_CHECKING:
    from pipeline.training.launch import FeaturesArtifact
    from tasks.train import Train

# Settings of [Train] that change the features.
_SETTINGS = ("model", "backend", "device", "precision", "jit_compile")


class Features:
    """The features for a run, with the attributes of a stage that the commands use."""

    task_family, kind = "Features", layout.FEATURES
    is_shared, is_renewed = True, False
    # State here and on the remote.
    status = Stage.status

    def __init__(self, train: "Train") -> None:
        """Describe the features for a run whose inputs are known."""
        self.train, self.param_kwargs = train, {name: getattr(train.settings, name) for name in _SETTINGS}

    def output(self) -> Artifact:
        """The artifact of the current identity."""
        identity = {**self.train.identity(), "settings": self.param_kwargs}
        artifact = Artifact(root_folder(), identity, experiment=self.train.experiment_name())
        name = f"{self.train.label()}-{artifact.expected[:12]}"
        return Artifact(root_folder() / self.kind / name, identity, experiment=artifact.experiment)

    def local_status(self) -> Status:
        """State of the artifact here, and the reasons."""
        return self.output().status()

    def can_be_fetched(self) -> bool:
        """Whether the artifact of another machine can be used."""
        remote = remote_cache.shared()
        return bool(remote and remote.is_on)

    def is_final(self) -> bool:
        """Whether the artifact was built here, and not from provisional records."""
        inputs = [stage.output().folder for stage in stages_up_to(self.train)[:-1]]
        return not read_fetched(self.output().folder) and not any(map(remote_cache.is_provisional, inputs))

    def fetch(self) -> "FeaturesArtifact":
        """Download the artifact if only the remote has it. Return the arguments of the training."""
        # It imports the schemas of a run.
        from pipeline.training.launch import FeaturesArtifact

        artifact = self.output()
        if self.status().remote:
            remote_cache.shared().get(self.kind, artifact.expected, artifact.folder)
        return FeaturesArtifact(folder=artifact.folder, identity=artifact.identity, experiment=artifact.experiment)

    def push(self) -> None:
        """Upload the artifact, unless [Storage] push = never."""
        if (remote := remote_cache.shared()) and Storage().push == "always" and self.is_final():
            remote.put(self.kind, self.output().folder)


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
