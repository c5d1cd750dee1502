"""Inference with the model of a run in ONNX Runtime: its inputs from files, and its answers as JSON data.

Requests and responses of programs follow the Open Inference Protocol (V2), with its extension for binary tensors.
https://github.com/kserve/open-inference-protocol and Triton's ``extension_binary_data``.
"""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime
from fastapi import HTTPException
from pydantic import BaseModel, Field, NonNegativeInt, ValidationError
from pydantic_core import from_json
from starlette.responses import JSONResponse, Response

from pipeline import machine
from pipeline.predict import Job
from pipeline.predict.rows import inputs_of, stored_content
from pipeline.predict.watch import Watch
from pipeline.records.features import DISTRIBUTION, LABELS, Task
from pipeline.runs.exporters import OUTPUT

_JSON_BYTES, _BINARY_BYTES = "Inference-Header-Content-Length", "binary_data_size"


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


class _Input(BaseModel):
    name: str
    # No other type is accepted, so there is no NaN.
    datatype: Literal["UINT8"]
    shape: list[NonNegativeInt] = Field(min_length=1, max_length=8)
    parameters: dict[str, Any] = {}
    data: list[Any] | None = None


class _Output(BaseModel):
    name: Literal["output_0"]
    parameters: dict[str, Any] = {}


class InferRequest(BaseModel):
    """JSON part of a request."""

    id: str | None = None
    inputs: list[_Input] = Field(min_length=1, max_length=1)
    outputs: list[_Output] = Field([], max_length=1)
    parameters: dict[str, Any] = {}


def metadata(model: ServedModel) -> dict[str, Any]:
    """Return the metadata of a model."""
    inputs = [{"name": model.input_name, "datatype": "UINT8", "shape": [-1, *model.input_shape]}]
    outputs = [{"name": OUTPUT, "datatype": "FP32", "shape": [-1, *model.output_shape]}]
    about = {"name": model.name, "versions": ["1"], "platform": "onnx_onnxruntime"}
    return {**about, "inputs": inputs, "outputs": outputs}


def parse(headers: Mapping[str, str], body: bytes, model: ServedModel) -> tuple[InferRequest, np.ndarray]:
    """Return a request and its inputs, uint8 (batch, …). HTTPException: the request is invalid."""
    length = headers.get(_JSON_BYTES, str(len(body)))
    if not (length.isascii() and length.isdecimal() and len(length) < 12 and int(length) <= len(body)):
        raise _refused(_JSON_BYTES, "the number of bytes of the JSON part", length)
    try:
        # The JSON parser of a model takes twice the memory for short lists.
        request = InferRequest.model_validate(from_json(body[: int(length)]))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise HTTPException(400, f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}.") from None
    except ValueError as error:
        raise HTTPException(400, f"body: Invalid JSON: {error}.") from None
    (tensor,) = request.inputs
    if tensor.name != model.input_name:
        raise _refused("inputs", f"the input {model.input_name}", tensor.name)
    if tuple(tensor.shape[1:]) != model.input_shape or not tensor.shape[0]:
        raise _refused(f"{tensor.name}.shape", f"[batch, {str([*model.input_shape])[1:]}", tensor.shape)
    return request, _values(tensor, body[int(length) :]).reshape(tensor.shape)


def _values(tensor: _Input, binary: bytes) -> np.ndarray:
    """Return the values of a tensor in one dimension."""
    count = math.prod(tensor.shape)
    if tensor.data is None:
        if not tensor.parameters.get(_BINARY_BYTES) == len(binary) == count:
            raise _refused(tensor.name, f"data, or {count} bytes after the JSON part", f"{len(binary)} bytes")
        return np.frombuffer(binary, np.uint8)
    # NumPy would give all texts the length of the longest.
    values = tensor.data
    while {*map(type, values)} == {list} and len({*map(len, values)}) == 1:
        values = [*chain.from_iterable(values)]
    if len(values) != count or {*map(type, values)} != {int} or min(values) < 0 or max(values) > 255:
        raise _refused(f"{tensor.name}.data", f"{count} integers from 0 to 255", f"{len(values)} values")
    return np.array(values, np.uint8)


def reply(request: InferRequest, outputs: np.ndarray, model: ServedModel) -> Response:
    """Return the response to a request."""
    tensor: dict[str, Any] = {"name": OUTPUT, "datatype": "FP32", "shape": list(outputs.shape)}
    answer = {"model_name": model.name, "model_version": "1", "id": request.id, "outputs": [tensor]}
    is_binary = request.parameters.get("binary_data_output")
    for output in request.outputs:
        is_binary = output.parameters.get("binary_data", is_binary)
    if not is_binary:
        tensor["data"] = outputs.ravel().tolist()
        return JSONResponse(answer)
    binary = outputs.astype("<f4").tobytes()
    tensor["parameters"] = {_BINARY_BYTES: len(binary)}
    begin = json.dumps(answer).encode()
    return Response(begin + binary, headers={_JSON_BYTES: str(len(begin))}, media_type="application/octet-stream")


def _refused(place: str, expected: str, got: object) -> HTTPException:
    return HTTPException(400, f"{place}: expected {expected}, got {got!s:.200}.")
