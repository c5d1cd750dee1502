"""The built-in exporters of ``EXPORTERS``. This module needs only the standard library."""

from dataclasses import dataclass

#: Name of the only output of a format.
OUTPUT = "output_0"


@dataclass(frozen=True)
class Exporter:
    """A format of a model.

    ``title`` names it in tables. ``file`` is its file or folder in the artifact. ``problems`` lists the problems with
    supported models. ``form`` is a module or ``module:class`` with ``write(job: export.TrainedModel, path)`` and
    ``load(path)``. The latter returns a function of inputs (batch, …) that returns outputs. ``packages`` are optional
    packages that it imports.
    """

    title: str
    file: str
    problems: tuple[str, ...]
    form: str
    packages: tuple[str, ...] = ()


_PROBLEMS = ("image_classification", "multi_label", "regression", "text_classification")
# LiteRT and OpenVINO cannot convert the loop of an LSTM over an unknown number of examples.
_WITH_LOOPS = (*_PROBLEMS, "next_token")
_LITERT = "ai_edge_litert"
SAVED_MODEL = Exporter("SavedModel", "saved_model", _WITH_LOOPS, "pipeline.runs.export:SavedModel")
FLOAT32 = Exporter("LiteRT float32", "model-float32.tflite", _PROBLEMS, "pipeline.runs.export:LiteRT", (_LITERT,))
INT8 = Exporter("LiteRT int8", "model-int8.tflite", _PROBLEMS, "pipeline.runs.export:LiteRTInt8", (_LITERT,))
ONNX = Exporter("ONNX", "model.onnx", _WITH_LOOPS, "pipeline.runs.export:Onnx", ("onnx", "onnxruntime", "tf2onnx"))
OPENVINO = Exporter("OpenVINO", "openvino", _PROBLEMS, "pipeline.runs.export:OpenVino", ("openvino",))
