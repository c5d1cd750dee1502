"""Export of a run's model in several formats. Each result is compared with the run's ``model.keras``.

The model is rebuilt in float32 with the trained weights, because LiteRT does not compute in bfloat16. A format has
``write(job, path)`` and ``load(path)``, see ``exporters.Exporter``.
"""

import json
import logging
import math
import pkgutil
import tempfile
import timeit
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from pipeline.artifacts.manifest import read_manifest
from pipeline.artifacts.publish import used_bytes
from pipeline.errors import SettingsError
from pipeline.models.build import build_for_task
from pipeline.models.model import LOGITS
from pipeline.problems import problem_of_records
from pipeline.problems.problem import Problem, open_split
from pipeline.records.features import form_of_any
from pipeline.records.images import fit
from pipeline.runs.exporters import OUTPUT, Exporter
from pipeline.runs.load_model import LoadedModel, load_trained
from pipeline.runs.metrics import EXPORT_NAME
from pipeline.runs.predictions import read_thresholds
from pipeline.settings.training import EXPORTERS
from pipeline.streams.tf_data import InputStream

#: Signatures of the SavedModel: uint8 images (batch, height, width, channels) or texts (batch, bytes), and strings
#: (batch,) of encoded images or texts in UTF-8.
PIXELS_SIGNATURE, ENCODED_SIGNATURE, UTF8_SIGNATURE = "serving_default", "encoded_images", "utf8_texts"

#: Inputs (batch, …) → outputs (batch, …), probabilities instead of logits.
Predict = Callable[[np.ndarray], np.ndarray]
_BATCH = 500
# Examples of a batch whose speed is measured.
_SERVED_BATCH = 32
# Difference of numbers that count as the same answer, in standard deviations.
_TOLERANCE = 0.01


@dataclass(frozen=True)
class TrainedModel:
    """Input of an exporter, the model in float32. Its ``outputs`` may be logits.

    ``manifest`` is that of its records. ``calibration`` contains inputs of the train split, which set integer ranges.
    """

    model: keras.Model
    outputs: str
    manifest: Mapping
    calibration: Sequence[np.ndarray] = ()

    @property
    def input(self) -> tf.TensorSpec:
        """Inputs, uint8 "images" (batch, height, width, channels), "texts" or "tokens" (batch, length)."""
        shape = problem_of_records(self.manifest).task(self.manifest).input_shape
        name = "images" if "image" in self.manifest else "texts" if "texts" in self.manifest else "tokens"
        return tf.TensorSpec((None, *shape), tf.uint8, name)

    def answers(self, inputs: tf.Tensor) -> tf.Tensor:
        """The outputs for a batch, float32, with probabilities instead of logits."""
        outputs = keras.ops.cast(self.model(inputs, training=False), "float32")
        return keras.ops.softmax(outputs) if self.outputs == LOGITS else outputs


class SavedModel:
    """Format for servers, with both signatures."""

    @staticmethod
    def write(job: TrainedModel, path: Path) -> None:
        """Write the folder of the SavedModel."""
        image, shape = job.manifest.get("image"), job.input.shape[1:]

        def decode(encoded: tf.Tensor) -> tf.Tensor:
            # Images get the model's shape, as in the records.
            pixels = tf.io.decode_image(encoded, channels=shape[2], expand_animations=False)
            pixels.set_shape([None, None, shape[2]])
            return tf.ensure_shape(fit(pixels, form_of_any(shape, image["resize"])), shape)

        def of_encoded(encoded: tf.Tensor) -> tf.Tensor:
            return job.answers(
                tf.map_fn(decode, encoded, fn_output_signature=tf.uint8) if image else _rows(encoded, *shape)
            )

        archive = keras.export.ExportArchive()
        archive.track(job.model)
        archive.add_endpoint(PIXELS_SIGNATURE, job.answers, [job.input])
        # Tokens of a text without labels need its vocabulary, which is in the manifest of the records.
        if job.input.name != "tokens":
            strings = tf.TensorSpec((None,), tf.string, "encoded")
            archive.add_endpoint(ENCODED_SIGNATURE if image else UTF8_SIGNATURE, of_encoded, [strings])
        archive.write_out(str(path), verbose=False)

    @staticmethod
    def load(path: Path) -> Predict:
        """Return its signature for uint8 batches."""
        loaded = tf.saved_model.load(str(path))
        (name,) = loaded.signatures[PIXELS_SIGNATURE].structured_input_signature[1]
        # The signature is valid only while the loaded object exists.
        return lambda inputs: loaded.signatures[PIXELS_SIGNATURE](**{name: tf.constant(inputs)})[OUTPUT].numpy()


class LiteRT:
    """Format for devices, in float32."""

    is_int8 = False

    @classmethod
    def write(cls, job: TrainedModel, path: Path) -> None:
        """Convert a SavedModel."""
        with tempfile.TemporaryDirectory() as source:
            SavedModel.write(job, Path(source))
            converter = tf.lite.TFLiteConverter.from_saved_model(source, signature_keys=[PIXELS_SIGNATURE])
            if cls.is_int8:
                converter.optimizations = [tf.lite.Optimize.DEFAULT]
                converter.representative_dataset = lambda: (
                    (PIXELS_SIGNATURE, {job.input.name: example[np.newaxis]}) for example in job.calibration
                )
            path.write_bytes(converter.convert())

    @staticmethod
    def load(path: Path) -> Predict:
        """Return its signature."""
        from ai_edge_litert.interpreter import Interpreter

        runner = Interpreter(str(path)).get_signature_runner(PIXELS_SIGNATURE)
        (name,) = runner.get_input_details()
        return lambda inputs: runner(**{name: inputs})[OUTPUT]


class LiteRTInt8(LiteRT):
    """Format for devices, with 8-bit weights and activations."""

    is_int8 = True


class Onnx:
    """Format for ONNX Runtime and other servers, in float32."""

    @staticmethod
    def write(job: TrainedModel, path: Path) -> None:
        """Write the file. Its input is that of the job, and its output is called OUTPUT."""
        import onnx

        _register_erfc()
        _whole(job).export(str(path), format="onnx", input_signature=[job.input], verbose=False)
        # The converter names the tensors.
        model = onnx.load(path)
        (output,) = model.graph.output
        for node in model.graph.node:
            node.output[:] = [OUTPUT if name == output.name else name for name in node.output]
        output.name = OUTPUT
        onnx.save(model, path)

    @staticmethod
    def load(path: Path) -> Predict:
        """Return a session of ONNX Runtime."""
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return lambda inputs: session.run([OUTPUT], {session.get_inputs()[0].name: inputs})[0]


class OpenVino:
    """Format for processors and accelerators of Intel, in float32. Its weights are in a second file."""

    @staticmethod
    def write(job: TrainedModel, path: Path) -> None:
        """Write the folder with ``model.xml`` and ``model.bin``."""
        path.mkdir()
        log = logging.getLogger()
        level, filters, handlers = log.level, [*log.filters], [*log.handlers]
        try:
            _whole(job).export(str(path / "model.xml"), format="openvino", input_signature=[job.input], verbose=False)
        finally:
            # After an error, the converter would hide the warnings of all others.
            log.setLevel(level)
            log.filters, log.handlers = filters, handlers

    @staticmethod
    def load(path: Path) -> Predict:
        """Return the compiled model. By itself, it would compute in bfloat16 on some processors."""
        import openvino

        hints = {"INFERENCE_PRECISION_HINT": "f32"}
        compiled = openvino.Core().compile_model(path / "model.xml", "CPU", hints)
        return lambda inputs: compiled(inputs)[0]


@cache
def _register_erfc() -> None:
    """Convert Erfc, with which Keras computes GELU. For an unknown operation, the converter writes an invalid model."""
    from tf2onnx.handler import tf_op

    @tf_op("Erfc")
    class Erfc:
        @classmethod
        def version_9(cls, ctx: Any, node: Any, **_: Any) -> None:
            """Replace it by 1 - Erf."""
            about = {"shapes": [ctx.get_shape(node.output[0])], "dtypes": [ctx.get_dtype(node.output[0])]}
            one = ctx.make_const(f"{node.name}/one", np.array(1, np.float32))
            erf = ctx.make_node("Erf", node.input, **about)
            ctx.remove_node(node.name)
            ctx.make_node("Sub", [one.output[0], erf.output[0]], outputs=node.output, name=node.name, **about)


def _whole(job: TrainedModel) -> keras.Model:
    """The model from uint8 inputs to ``answers``."""
    inputs = keras.Input(job.input.shape[1:], dtype="uint8", name=job.input.name)
    return keras.Model(inputs, job.answers(inputs))


def _rows(texts: tf.Tensor, length: int) -> tf.Tensor:
    """Return the first bytes of texts in UTF-8, string (batch,), as uint8 (batch, length), as in the records."""
    without_mark = tf.strings.regex_replace(texts, "^\ufeff", "")
    texts = tf.strings.strip(tf.strings.regex_replace(without_mark, "\r\n?", "\n"))
    # A part of a character at the end is left out.
    texts = tf.strings.unicode_transcode(tf.strings.substr(texts, 0, length), "UTF-8", "UTF-8", errors="ignore")
    return tf.io.decode_raw(texts, tf.uint8, fixed_length=length)


def export(
    run: Path, records: Path, folder: Path, *, formats: Iterable[str], calibration_examples: int, model: str = ""
) -> dict:
    """Write formats of a run's model, and export.json, into an empty folder.

    ``records`` are those of the run, and ``formats`` names of EXPORTERS. ``calibration_examples`` of the train split
    serve the calibration. ``model`` is [Train] model of the present settings, see ``load_trained``. Returns the
    contents of export.json. ``num_examples`` counts the test split, and ``model`` describes inputs and outputs. Each
    form has ``bytes``, ``accuracy``, ``agreement`` (share of test examples with the answer of ``model.keras``),
    ``largest_difference`` (of an output from that of ``model.keras``, None if one is not finite), ``milliseconds`` of
    one example, and ``examples_per_second`` in batches of 32.
    """
    manifest, loaded = read_manifest(records), load_trained(run, model=model)
    splits = [open_split(records, manifest, name) for name in ("train", "test")]
    options = {"seed": 0, "in_memory": False}
    train, test = (InputStream(one, global_batch_size=min(_BATCH, one.num_examples), **options) for one in splits)
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
    described = _description(run, manifest, job)
    thresholds = described.get("thresholds", ())
    facts = _compare(folder, exporters, loaded, test, problem_of_records(manifest), thresholds) | {"model": described}
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
    folder: Path,
    exporters: Sequence[Exporter],
    loaded: LoadedModel,
    test: InputStream,
    problem: Problem,
    thresholds: Sequence[float],
) -> dict:
    """Return the contents of export.json."""
    answers_of = (lambda outputs: (outputs >= thresholds).astype(np.uint8)) if thresholds else problem.answers
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
            _add(forms[title], predict(inputs), expected, labels, answers_of)
    for form in forms.values():
        form["accuracy"] = form["accuracy"] / count if problem.metrics() else None
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


def _add(form: dict, pred: np.ndarray, expected: np.ndarray, labels: np.ndarray, answers_of: Predict) -> None:
    for name, others in (("accuracy", labels), ("agreement", answers_of(expected))):
        equal = np.isclose(answers_of(pred), others, rtol=0, atol=_TOLERANCE).reshape(len(labels), -1)
        # The accuracy counts each of several labels. An example agrees as a whole, unless it is a text of many tokens.
        is_whole = name == "agreement" and pred.ndim == 2
        form[name] += float((equal.all(axis=1) if is_whole else equal.mean(axis=1)).sum())
    # Unlike max, it keeps NaN.
    form["largest_difference"] = float(np.maximum(form["largest_difference"], np.abs(pred - expected).max()))
