"""Trained model of a run, for exports and predictions."""

from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
from safetensors.numpy import load_file

from pipeline.artifacts.fingerprint import code_digests
from pipeline.artifacts.manifest import MANIFEST_NAME, read_fetched, read_manifest
from pipeline.errors import DamagedArtifactError, SettingsError
from pipeline.hardware.placement import runtime_called
from pipeline.models.build import build_for_task, load_builder
from pipeline.models.model import as_probabilities, assign, configure_keras, named_variables
from pipeline.problems.classification import VIEWS
from pipeline.records.features import Task
from pipeline.runs.metrics import MODEL_NAME, TASK_NAME, WEIGHTS_NAME
from pipeline.runs.record import RunRecord, read_record
from pipeline.runs.validation import Untrusted, checked, read_text
from pipeline.settings.schema import is_own
from pipeline.settings.training import MODELS


class _TaskFile(Untrusted):
    task: Task


@dataclass(frozen=True)
class LoadedModel:
    """The model in ``model.keras``, or built by its code with the weights of the run, and the record of the run."""

    model: keras.Model
    record: RunRecord

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of an example, (height, width, channels), or (length,) for a text."""
        # A subclassed model has no input shape.
        shape = getattr(self.model, "input_shape", None)
        return shape[1:] if shape else self.record.input_shape

    def probabilities(self, images: np.ndarray, test_time_augmentation: str = "none") -> np.ndarray:
        """Return float32 probabilities (batch, num_labels) for uint8 images (batch, height, width, channels)."""
        outputs = 0
        for view in VIEWS[test_time_augmentation]:
            output = self.model.predict_on_batch(np.asarray(view.of(images))).astype(np.float32)
            outputs = outputs + np.float32(view.weight) * output
        return as_probabilities(outputs, self.record.outputs)


def load_trained(run: Path, *, model: str = "") -> LoadedModel:
    """Load the model of a run's folder.

    ``model`` is [Train] model of the present settings. User code is imported if it is named there, or if the run was
    trained under this root. A run from a remote may name any module of this machine.
    """
    configure_keras()
    record = read_record(run)
    is_named = is_own(record.model) and not MODELS.is_ours(record.model)
    is_user_code = is_named or MODELS.is_outside(record.model)
    has_file = (run / MODEL_NAME).exists()
    if not has_file and not (is_user_code and (run / TASK_NAME).exists()):
        raise DamagedArtifactError(
            f"{run / MODEL_NAME}: expected a model, but the run was {record.status}. Train it on an available device."
        )
    if is_named and record.model != model and (fetched := read_fetched(run)):
        raise SettingsError(
            f"{run.name}: The run is from {fetched['remote']}, and its model {record.model!r} is user code. Allow its "
            f"import with --Train-model {record.model}."
        )
    # A fetched run may have any name. A name without a colon must be registered by an installed package.
    if is_user_code:
        # The import registers the model's classes with Keras.
        load_builder(record.model)
    runtime_called(keras.backend.backend()).set_matmul_precision(record.precision)
    return LoadedModel(
        keras.saving.load_model(run / MODEL_NAME, safe_mode=True) if has_file else _built(run, record), record
    )


def _built(run: Path, record: RunRecord) -> keras.Model:
    """Build the model by its code and assign the weights of the run. SettingsError: the code has changed."""
    module = MODELS.get(record.model, record.model).partition(":")[0]
    trained = read_manifest(run)["identity"].get("code", {}) if (run / MANIFEST_NAME).exists() else {}
    present = code_digests(module, (module,))
    changed = [name for name in trained.keys() & present.keys() if trained[name] != present[name]]
    if changed := sorted(name for name in changed if not name.startswith("pipeline.")):
        raise SettingsError(
            f"{run.name}: The run has no {MODEL_NAME}, because only its code can build the model. The code has changed "
            f"since the training: {', '.join(changed)}. Restore the code, or retrain."
        )
    # Names of layers start again in a new session, as in the training.
    keras.utils.clear_session()
    file = run / TASK_NAME
    model = build_for_task(checked(_TaskFile, read_text(file), file).task, record.model, record.precision)
    assign(named_variables(model), load_file(run / WEIGHTS_NAME))
    return model
