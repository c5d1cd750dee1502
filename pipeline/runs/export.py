"""Export of a run's model with each exporter of its problem. Each result is compared with the run's ``model.keras``.

The model is rebuilt in float32 with the trained weights, because LiteRT does not compute in bfloat16.
"""

import json
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from pipeline.artifacts.manifest import read_manifest
from pipeline.artifacts.publish import used_bytes
from pipeline.models.build import build_for_task
from pipeline.models.model import LOGITS
from pipeline.problems import problem_of_records
from pipeline.problems.problem import Problem, open_split
from pipeline.problems.results import results_of
from pipeline.records.features import form_of_any
from pipeline.records.images import fit
from pipeline.runs.exporters import SAVED_MODEL, Exporter, exporters_of
from pipeline.runs.load_model import LoadedModel, load_trained
from pipeline.runs.metrics import EXPORT_NAME
from pipeline.streams.tf_data import InputStream

#: Signatures of the SavedModel: uint8 images (batch, height, width, channels) or texts (batch, bytes), and strings
#: (batch,) of encoded images or texts in UTF-8.
PIXELS_SIGNATURE, ENCODED_SIGNATURE, UTF8_SIGNATURE = "serving_default", "encoded_images", "utf8_texts"
_BATCH = 500
# Difference of numbers that count as the same answer, in standard deviations.
_TOLERANCE = 0.01

#: Inputs (batch, …) → outputs (batch, …), probabilities instead of logits.
Predict = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class TrainedModel:
    """Input of an exporter, the model in float32. Its ``outputs`` may be logits.

    ``manifest`` is that of its records. ``calibration`` contains inputs of the train split, which set integer ranges.
    """

    model: keras.Model
    outputs: str
    manifest: Mapping
    calibration: Sequence[np.ndarray]


def export(run: Path, records: Path, folder: Path, *, calibration_examples: int, model: str = "") -> dict:
    """Write every format of a run's model, and export.json, into an empty folder.

    ``records`` are those of the run. ``calibration_examples`` of their train split serve the calibration. ``model`` is
    [Train] model of the present settings, see ``load_trained``.

    Returns:
        The contents of export.json. ``num_examples`` counts the test split. Each form has ``bytes``, ``accuracy``,
        ``agreement`` (share of test examples with the answer of ``model.keras``) and ``largest_difference`` (of an
        output from that of ``model.keras``).
    """
    manifest, loaded = read_manifest(records), load_trained(run, model=model)
    problem = problem_of_records(manifest)
    rebuilt = build_for_task(problem.task(manifest), loaded.record.model, "float32")
    rebuilt.set_weights(loaded.model.get_weights())
    train, test = (_stream(records, manifest, name) for name in ("train", "test"))
    inputs = train.evaluation().unbatch().take(calibration_examples).map(lambda inputs, _: inputs)
    job = TrainedModel(rebuilt, loaded.record.outputs, manifest, list(inputs.as_numpy_iterator()))
    exporters = exporters_of(problem.name)
    for exporter in exporters:
        pkgutil.resolve_name(exporter.form).write(job, folder / exporter.file)
    facts = _compare(folder, exporters, loaded, test, problem)
    (folder / EXPORT_NAME).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return facts


class SavedModel:
    """Format for servers, with both signatures."""

    @staticmethod
    def write(job: TrainedModel, path: Path) -> None:
        """Write the folder of the SavedModel."""
        model, image = job.model, job.manifest.get("image")
        shape = problem_of_records(job.manifest).task(job.manifest).input_shape

        def of_inputs(inputs: tf.Tensor) -> tf.Tensor:
            outputs = tf.cast(model(inputs, training=False), tf.float32)
            return tf.nn.softmax(outputs) if job.outputs == LOGITS else outputs

        def decode(encoded: tf.Tensor) -> tf.Tensor:
            # Images get the model's shape, as in the records.
            pixels = tf.io.decode_image(encoded, channels=shape[2], expand_animations=False)
            pixels.set_shape([None, None, shape[2]])
            return tf.ensure_shape(fit(pixels, form_of_any(shape, image["resize"])), shape)

        def of_encoded(encoded: tf.Tensor) -> tf.Tensor:
            return of_inputs(
                tf.map_fn(decode, encoded, fn_output_signature=tf.uint8) if image else _rows(encoded, *shape)
            )

        archive = keras.export.ExportArchive()
        archive.track(model)
        inputs = tf.TensorSpec((None, *shape), tf.uint8, "images" if image else "texts")
        archive.add_endpoint(PIXELS_SIGNATURE, of_inputs, [inputs])
        strings = tf.TensorSpec((None,), tf.string, "encoded")
        archive.add_endpoint(ENCODED_SIGNATURE if image else UTF8_SIGNATURE, of_encoded, [strings])
        archive.write_out(str(path), verbose=False)

    @staticmethod
    def load(path: Path) -> Predict:
        """Return its signature for uint8 batches."""
        # The signature is valid only while the loaded object exists.
        loaded = tf.saved_model.load(str(path))

        def predict(inputs: np.ndarray) -> np.ndarray:
            signature = loaded.signatures[PIXELS_SIGNATURE]
            (name,) = signature.structured_input_signature[1]
            (probabilities,) = signature(**{name: tf.constant(inputs)}).values()
            return probabilities.numpy()

        return predict


class LiteRT:
    """Format for devices, in float32."""

    is_int8 = False

    @classmethod
    def write(cls, job: TrainedModel, path: Path) -> None:
        """Convert the SavedModel in the same folder."""
        source = str(path.with_name(SAVED_MODEL.file))
        converter = tf.lite.TFLiteConverter.from_saved_model(source, signature_keys=[PIXELS_SIGNATURE])
        if cls.is_int8:
            name = "images" if "image" in job.manifest else "texts"
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            # The examples set the ranges.
            converter.representative_dataset = lambda: (
                (PIXELS_SIGNATURE, {name: example[np.newaxis]}) for example in job.calibration
            )
        path.write_bytes(converter.convert())

    @staticmethod
    def load(path: Path) -> Predict:
        """Return its signature."""
        from ai_edge_litert.interpreter import Interpreter

        runner = Interpreter(str(path)).get_signature_runner(PIXELS_SIGNATURE)

        def predict(inputs: np.ndarray) -> np.ndarray:
            (name,) = runner.get_input_details()
            (probabilities,) = runner(**{name: inputs}).values()
            return probabilities

        return predict


class LiteRTInt8(LiteRT):
    """Format for devices, with 8-bit weights and activations."""

    is_int8 = True


def _rows(texts: tf.Tensor, length: int) -> tf.Tensor:
    """Return the first bytes of texts in UTF-8, string (batch,), as uint8 (batch, length), as in the records."""
    texts = tf.strings.strip(tf.strings.regex_replace(texts, "\r\n?", "\n"))
    # A part of a character at the end is left out.
    texts = tf.strings.unicode_transcode(tf.strings.substr(texts, 0, length), "UTF-8", "UTF-8", errors="ignore")
    return tf.io.decode_raw(texts, tf.uint8, fixed_length=length)


def _compare(
    folder: Path, exporters: Sequence[Exporter], loaded: LoadedModel, test: InputStream, problem: Problem
) -> dict:
    """Return the contents of export.json."""
    count = test.split.num_examples
    forms, predictors = {}, {}
    for exporter in exporters:
        path = folder / exporter.file
        predictors[exporter.title] = pkgutil.resolve_name(exporter.form).load(path)
        forms[exporter.title] = {"bytes": used_bytes(path), "accuracy": 0, "agreement": 0, "largest_difference": 0.0}
    for inputs, labels in test.evaluation().as_numpy_iterator():
        expected = loaded.probabilities(inputs)
        for title, predict in predictors.items():
            _add(forms[title], predict(inputs), expected, labels, problem)
    for form in forms.values():
        form |= {name: form[name] / count for name in ("accuracy", "agreement")}
        form["accuracy"] = form["accuracy"] if results_of(problem.name).has_accuracy else None
    return {"num_examples": count, "forms": forms}


def _add(form: dict[str, float], pred: np.ndarray, expected: np.ndarray, labels: np.ndarray, problem: Problem) -> None:
    answers = problem.answers(pred)
    # An example with several labels counts by the share of right ones.
    for name, others in (("accuracy", labels), ("agreement", problem.answers(expected))):
        form[name] += float(
            np.isclose(answers, others, rtol=0, atol=_TOLERANCE).reshape(len(labels), -1).mean(axis=1).sum()
        )
    form["largest_difference"] = max(form["largest_difference"], float(np.abs(pred - expected).max()))


def _stream(folder: Path, manifest: Mapping, name: str) -> InputStream:
    split = open_split(folder, manifest, name)
    return InputStream(split, global_batch_size=min(_BATCH, split.num_examples), seed=0, in_memory=False)
