"""Formats of exported models. Each has ``write(job, path)`` and ``load(path)``, see ``exporters.Exporter``."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from pipeline.models.model import LOGITS
from pipeline.problems import problem_of_records
from pipeline.records.features import form_of_any
from pipeline.records.images import fit
from pipeline.runs.exporters import OUTPUT

#: Signatures of the SavedModel: uint8 images (batch, height, width, channels) or texts (batch, bytes), and strings
#: (batch,) of encoded images or texts in UTF-8.
PIXELS_SIGNATURE, ENCODED_SIGNATURE, UTF8_SIGNATURE = "serving_default", "encoded_images", "utf8_texts"

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
        _whole(job).export(str(path / "model.xml"), format="openvino", input_signature=[job.input], verbose=False)

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
