"""Model of a run in ONNX Runtime, its inputs from files, and its answers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from pipeline import machine
from pipeline.predict import Job
from pipeline.predict.rows import inputs_of, stored_content
from pipeline.predict.watch import Watch
from pipeline.records.features import DISTRIBUTION, LABELS, Task


class ServedModel:
    """Model of a run. ``input_shape`` is that of an example, and ``input_name`` is "images" or "texts"."""

    def __init__(self, job: Job, task: Task, file: Path, thresholds: Sequence[float]) -> None:
        self.job, self.name, self.has_images = job, Path(job.run).name, job.form is not None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = machine.granted_cores()
        # Waiting threads would take the cores from the requests.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self.input_name = self._session.get_inputs()[0].name
        self.input_shape, self.output_shape = task.input_shape, task.output_shape
        self.watch, self.meaning, self._thresholds = Watch(job), task.meaning, np.array(thresholds)

    def outputs(self, inputs: np.ndarray) -> np.ndarray:
        """Return float32 outputs (batch, …) for uint8 inputs (batch, …)."""
        (outputs,) = self._session.run(None, {self.input_name: inputs})
        return outputs

    def counted(self, outputs: np.ndarray, sides: Sequence[int] = ()) -> np.ndarray:
        """Return outputs. Count them, and the shorter sides of their images, if the run is watched."""
        self.watch.add(outputs, sides)
        return outputs

    def example(self, content: bytes) -> tuple[np.ndarray, list[int]]:
        """Return a file as ``predict`` reads it, uint8 (1, …), and the side of an image. UndecodableError: unusable."""
        stored, side = stored_content(content, self.input_shape, self.job)
        return inputs_of([stored], self.input_shape, self.job), [side] if self.has_images else []

    def answer(self, outputs: np.ndarray) -> dict[str, Any]:
        """Return the labels and all probabilities, the greatest first, or the values of one example as JSON data."""
        named = dict(zip(self.job.label_names, outputs.tolist(), strict=True))
        if self.meaning not in (DISTRIBUTION, LABELS):
            return {"model": self.name, "values": named}
        chosen = [outputs.argmax()] if self.meaning == DISTRIBUTION else np.flatnonzero(outputs >= self._thresholds)
        ordered = dict(sorted(named.items(), key=lambda item: -item[1]))
        return {"model": self.name, "labels": [self.job.label_names[i] for i in chosen], "probabilities": ordered}
