"""Exporters: forms that a trained model is written in. Importing this module needs the standard library alone."""

from dataclasses import dataclass

from pipeline.registry import Registry


@dataclass(frozen=True)
class Exporter:
    """A form of a model.

    ``title``: in tables. ``file``: its file or folder in the artifact. ``problems`` that it takes models of. ``write``:
    ``module:function`` of (``export.TrainedModel``, folder of the artifact). ``load``: that of the folder → a function
    of inputs (batch, …) → outputs. ``package``: of an extra, which it needs.
    """

    title: str
    file: str
    problems: tuple[str, ...]
    write: str
    load: str
    package: str = ""


_IMAGES = ("image_classification",)

SAVED_MODEL = Exporter(
    "SavedModel", "saved_model", _IMAGES, "pipeline.runs.export:write_saved_model", "pipeline.runs.export:saved_model"
)
# Converted from the SavedModel.
LITERT_FLOAT32 = Exporter(
    "LiteRT float32",
    "model-float32.tflite",
    _IMAGES,
    "pipeline.runs.export:write_float32",
    "pipeline.runs.export:litert_float32",
    "ai_edge_litert",
)
LITERT_INT8 = Exporter(
    "LiteRT int8",
    "model-int8.tflite",
    _IMAGES,
    "pipeline.runs.export:write_int8",
    "pipeline.runs.export:litert_int8",
    "ai_edge_litert",
)

#: Name → ``Exporter``, in the order in which they write.
EXPORTERS = Registry(
    "exporters",
    {
        "saved_model": "pipeline.runs.exporters:SAVED_MODEL",
        "litert_float32": "pipeline.runs.exporters:LITERT_FLOAT32",
        "litert_int8": "pipeline.runs.exporters:LITERT_INT8",
    },
)


def exporters_of(problem: str) -> list[Exporter]:
    """The exporters for the models of a problem."""
    return [exporter for name in EXPORTERS if problem in (exporter := EXPORTERS.load(name)).problems]
