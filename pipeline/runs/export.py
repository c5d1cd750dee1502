"""Export of a run's model in several formats. Each result is compared with the run's ``model.keras``.

The model is rebuilt in float32 with the trained weights, because LiteRT does not compute in bfloat16.
"""

import json
import math
import pkgutil
import timeit
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from pipeline.artifacts.manifest import read_manifest
from pipeline.artifacts.publish import used_bytes
from pipeline.errors import SettingsError
from pipeline.models.build import build_for_task
from pipeline.problems import problem_of_records
from pipeline.problems.problem import Problem, open_split
from pipeline.problems.results import results_of
from pipeline.runs.exporters import OUTPUT, Exporter
from pipeline.runs.formats import Onnx, Predict, TrainedModel
from pipeline.runs.load_model import LoadedModel, load_trained
from pipeline.runs.metrics import EXPORT_NAME
from pipeline.runs.predictions import read_thresholds
from pipeline.settings.training import EXPORTERS
from pipeline.streams.tf_data import InputStream

_BATCH = 500
# Examples of a batch whose speed is measured.
_SERVED_BATCH = 32
# Difference of numbers that count as the same answer, in standard deviations.
_TOLERANCE = 0.01


def export(
    run: Path, records: Path, folder: Path, *, formats: Iterable[str], calibration_examples: int, model: str = ""
) -> dict:
    """Write formats of a run's model, and export.json, into an empty folder.

    ``records`` are those of the run, and ``formats`` names of EXPORTERS. ``calibration_examples`` of the train split
    serve the calibration. ``model`` is [Train] model of the present settings, see ``load_trained``.

    Returns:
        The contents of export.json. ``num_examples`` counts the test split, and ``model`` describes inputs and outputs.
        Each form has ``bytes``, ``accuracy``, ``agreement`` (share of test examples with the answer of
        ``model.keras``), ``largest_difference`` (of an output from that of ``model.keras``, None if one is not finite),
        ``milliseconds`` of one example, and ``examples_per_second`` in batches of 32.
    """
    manifest, loaded = read_manifest(records), load_trained(run, model=model)
    train, test = (_stream(records, manifest, name) for name in ("train", "test"))
    inputs = train.evaluation().unbatch().take(calibration_examples).map(lambda inputs, _: inputs)
    job = _in_float32(loaded, manifest, list(inputs.as_numpy_iterator()))
    exporters = [EXPORTERS.load(name) for name in formats]
    for exporter in exporters:
        try:
            pkgutil.resolve_name(exporter.form).write(job, folder / exporter.file)
        # The converters raise errors of every kind for a model that they do not know.
        except Exception as error:
            raise SettingsError(
                f"[Export] formats: {exporter.title} could not convert {loaded.record.model} ({type(error).__name__}). "
                "Choose other formats, or change the model. The log of the stage has the reason."
            ) from error
    facts = _compare(folder, exporters, loaded, test, problem_of_records(manifest))
    facts["model"] = _description(run, manifest, job)
    (folder / EXPORT_NAME).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return facts


def write_onnx(run: Path, manifest: Mapping, file: Path, *, model: str = "") -> dict:
    """Write the model of a run, with the manifest of its records, as ONNX. Return the description of the model."""
    loaded = load_trained(run, model=model)
    job = _in_float32(loaded, manifest, ())
    Onnx.write(job, file)
    return _description(run, manifest, job)


def _in_float32(loaded: LoadedModel, manifest: Mapping, calibration: Sequence[np.ndarray]) -> TrainedModel:
    rebuilt = build_for_task(problem_of_records(manifest).task(manifest), loaded.record.model, "float32")
    rebuilt.set_weights(loaded.model.get_weights())
    return TrainedModel(rebuilt, loaded.record.outputs, manifest, calibration)


def _description(run: Path, manifest: Mapping, job: TrainedModel) -> dict:
    """Describe inputs and outputs, so that another program can prepare the inputs and read the outputs.

    ``image`` is the form of images in the records, and ``value_range`` the values of 16-bit images that become black
    and white. ``thresholds`` are those of several labels. Outputs of a regression are in the units of the data.
    """
    described = {
        "problem": manifest["problem"],
        "input": job.input.name,
        "input_shape": list(job.input.shape[1:]),
        "dtype": job.input.dtype.name,
        "output": OUTPUT,
        "label_names": manifest["label_names"],
    }
    if image := manifest.get("image"):
        described |= {"image": image, "value_range": manifest["source"]["value_range"]}
    thresholds = read_thresholds(run)
    return described | ({"thresholds": thresholds} if thresholds else {})


def _compare(
    folder: Path, exporters: Sequence[Exporter], loaded: LoadedModel, test: InputStream, problem: Problem
) -> dict:
    """Return the contents of export.json."""
    count = test.split.num_examples
    forms, predictors = {}, {}
    (examples, _) = next(test.evaluation().as_numpy_iterator())
    for exporter in exporters:
        path = folder / exporter.file
        predictors[exporter.title] = predict = pkgutil.resolve_name(exporter.form).load(path)
        forms[exporter.title] = {
            "bytes": used_bytes(path),
            **dict.fromkeys(("accuracy", "agreement", "largest_difference"), 0.0),
            "milliseconds": 1e3 * _seconds(predict, examples, 1),
            "examples_per_second": _SERVED_BATCH / _seconds(predict, examples, _SERVED_BATCH),
        }
    for inputs, labels in test.evaluation().as_numpy_iterator():
        expected = loaded.probabilities(inputs)
        for title, predict in predictors.items():
            _add(forms[title], predict(inputs), expected, labels, problem)
    for form in forms.values():
        form["accuracy"] = form["accuracy"] / count if results_of(problem.name).has_accuracy else None
        form["agreement"] /= count
        if not math.isfinite(form["largest_difference"]):
            form["largest_difference"] = None
    return {"num_examples": count, "forms": forms}


def _seconds(predict: Predict, examples: np.ndarray, size: int) -> float:
    """Mean seconds of a batch in calls after the first one, for at least 0.2 s. ``examples`` are repeated."""
    inputs = np.resize(examples, (size, *examples.shape[1:]))
    predict(inputs)
    calls, seconds = timeit.Timer(lambda: predict(inputs)).autorange()
    return seconds / calls


def _add(form: dict[str, float], pred: np.ndarray, expected: np.ndarray, labels: np.ndarray, problem: Problem) -> None:
    answers = problem.answers(pred)
    # An example with several labels counts by the share of right ones.
    for name, others in (("accuracy", labels), ("agreement", problem.answers(expected))):
        form[name] += float(
            np.isclose(answers, others, rtol=0, atol=_TOLERANCE).reshape(len(labels), -1).mean(axis=1).sum()
        )
    # Unlike max, it keeps NaN.
    form["largest_difference"] = float(np.maximum(form["largest_difference"], np.abs(pred - expected).max()))


def _stream(folder: Path, manifest: Mapping, name: str) -> InputStream:
    split = open_split(folder, manifest, name)
    return InputStream(split, global_batch_size=min(_BATCH, split.num_examples), seed=0, in_memory=False)
