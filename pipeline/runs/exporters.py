"""Exporters, which write a trained model in other formats. This module needs only the standard library."""

from dataclasses import dataclass

from pipeline.registry import Registry


@dataclass(frozen=True)
class Exporter:
    """A format of a model.

    ``title`` names it in tables. ``file`` is its file or folder in the artifact. ``problems`` lists the problems with
    supported models. ``package`` is an optional package that it needs. ``form`` is a module or ``module:class`` with
    ``write(job: export.TrainedModel, path)`` and ``load(path)``. The latter returns a function of inputs (batch, …)
    that returns outputs.
    """

    title: str
    file: str
    problems: tuple[str, ...]
    form: str
    package: str = ""


_PROBLEMS = ("image_classification", "multi_label", "regression", "text_classification")
_LITERT = "ai_edge_litert"
SAVED_MODEL = Exporter("SavedModel", "saved_model", _PROBLEMS, "pipeline.runs.export:SavedModel")
FLOAT32 = Exporter("LiteRT float32", "model-float32.tflite", _PROBLEMS, "pipeline.runs.export:LiteRT", _LITERT)
INT8 = Exporter("LiteRT int8", "model-int8.tflite", _PROBLEMS, "pipeline.runs.export:LiteRTInt8", _LITERT)

#: Name → ``Exporter``, in the order of writing.
EXPORTERS = Registry(
    "exporters",
    {
        "saved_model": "pipeline.runs.exporters:SAVED_MODEL",
        # The next two convert the SavedModel.
        "litert_float32": "pipeline.runs.exporters:FLOAT32",
        "litert_int8": "pipeline.runs.exporters:INT8",
    },
)


def exporters_of(problem: str) -> list[Exporter]:
    """Return the exporters for the models of a problem."""
    return [exporter for name in EXPORTERS if problem in (exporter := EXPORTERS.load(name)).problems]
