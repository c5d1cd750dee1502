"""Exporters: forms that a trained model is written in. Importing this module needs the standard library alone."""

from dataclasses import dataclass

from pipeline.registry import Registry


@dataclass(frozen=True)
class Exporter:
    """A form of a model.

    ``title``: in tables. ``file``: its file or folder in the artifact. ``problems`` that it takes models of. ``form``:
    a module, or ``module:class``, with ``write(job: export.TrainedModel, path)`` and ``load(path)``. The latter returns
    a function of inputs (batch, …) → outputs. ``package``: an optional one that it needs.
    """

    title: str
    file: str
    problems: tuple[str, ...]
    form: str
    package: str = ""


_IMAGES, _LITERT = ("image_classification",), "ai_edge_litert"
SAVED_MODEL = Exporter("SavedModel", "saved_model", _IMAGES, "pipeline.runs.export:SavedModel")
FLOAT32 = Exporter("LiteRT float32", "model-float32.tflite", _IMAGES, "pipeline.runs.export:LiteRT", _LITERT)
INT8 = Exporter("LiteRT int8", "model-int8.tflite", _IMAGES, "pipeline.runs.export:LiteRTInt8", _LITERT)

#: Name → ``Exporter``, in the order in which they write.
EXPORTERS = Registry(
    "exporters",
    {
        "saved_model": "pipeline.runs.exporters:SAVED_MODEL",
        # Both convert the SavedModel.
        "litert_float32": "pipeline.runs.exporters:FLOAT32",
        "litert_int8": "pipeline.runs.exporters:INT8",
    },
)


def exporters_of(problem: str) -> list[Exporter]:
    """The exporters for the models of a problem."""
    return [exporter for name in EXPORTERS if problem in (exporter := EXPORTERS.load(name)).problems]
