"""Export of a run's model as a SavedModel for servers, and as LiteRT in float32 and int8 for devices.

The SavedModel has a signature for uint8 batches and one for encoded images (PNG or JPEG). The model is rebuilt in
float32 with the trained weights, because LiteRT does not compute in bfloat16. Each form classifies the test split and
is compared with the run's ``model.keras``.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from pipeline.artefacts.manifest import read_manifest
from pipeline.artefacts.space import used_bytes
from pipeline.networks.build import build_network
from pipeline.networks.model import LOGITS
from pipeline.problems import problem_of_records
from pipeline.problems.problem import open_split
from pipeline.records.features import form_of_any
from pipeline.records.images import fit
from pipeline.runs.metrics import EXPORT_NAME
from pipeline.runs.trained import TrainedNetwork, load_trained
from pipeline.stream import InputStream

SAVED_MODEL_NAME = "saved_model"
LITERT_NAMES = {"float32": "model-float32.tflite", "int8": "model-int8.tflite"}

#: Signatures of the SavedModel: uint8 images (batch, height, width, channels), and strings (batch,).
PIXELS_SIGNATURE, ENCODED_SIGNATURE = "serving_default", "encoded_images"
_BATCH = 500

#: uint8 images (batch, height, width, channels) → probabilities (batch, labels).
Predict = Callable[[np.ndarray], np.ndarray]


def export(run: Path, records: Path, folder: Path, *, calibration_examples: int, model: str = "") -> dict:
    """Write every form of a run's model, and export.json, into an empty folder.

    ``records`` is the folder of the records that the run was trained on. ``calibration_examples`` is the number of
    images of the train split that set the ranges of the int8 model. ``model`` is [Train] model of the present settings,
    see ``load_trained``.

    Returns:
        The contents of export.json: ``num_examples`` of the test split and, for each form, its ``bytes``, ``accuracy``,
        ``agreement`` (share of test images with the same label as by ``model.keras``) and ``largest_difference`` of a
        probability from that model's.

    Raises:
        DamagedArtefactError: the run was skipped and has no model.
    """
    manifest, shipped = read_manifest(records), load_trained(run, model=model)
    network = build_network(problem_of_records(manifest).task(manifest), shipped.record.model, "float32")
    network.set_weights(shipped.model.get_weights())
    train, test = (_stream(records, manifest, name) for name in ("train", "test"))
    _write_saved_model(network, shipped.record.outputs, manifest["image"], folder / SAVED_MODEL_NAME)
    images = train.evaluation().unbatch().take(calibration_examples).map(lambda image, _: image)
    _write_litert(folder, list(images.as_numpy_iterator()))
    facts = _judged(folder, shipped, test)
    (folder / EXPORT_NAME).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return facts


def saved_model(folder: Path) -> Predict:
    """The exported SavedModel by its signature for uint8 batches."""
    # A signature needs the loaded object.
    loaded = tf.saved_model.load(str(folder / SAVED_MODEL_NAME))

    def predict(images: np.ndarray) -> np.ndarray:
        (probabilities,) = loaded.signatures[PIXELS_SIGNATURE](images=tf.constant(images)).values()
        return probabilities.numpy()

    return predict


def litert(folder: Path, kind: str) -> Predict:
    """The exported LiteRT network, ``float32`` or ``int8``."""
    runner = Interpreter(str(folder / LITERT_NAMES[kind])).get_signature_runner(PIXELS_SIGNATURE)

    def predict(images: np.ndarray) -> np.ndarray:
        (probabilities,) = runner(images=images).values()
        return probabilities

    return predict


def _write_saved_model(model: keras.Model, outputs: str, image: Mapping, folder: Path) -> None:
    shape = tuple(image["shape"])
    form = form_of_any(shape, image["resize"])

    def of_pixels(images: tf.Tensor) -> tf.Tensor:
        given = tf.cast(model(images, training=False), tf.float32)
        return tf.nn.softmax(given) if outputs == LOGITS else given

    def decode(encoded: tf.Tensor) -> tf.Tensor:
        # In the model's shape, as in the records.
        pixels = tf.io.decode_image(encoded, channels=shape[2], expand_animations=False)
        pixels.set_shape([None, None, shape[2]])
        return tf.ensure_shape(fit(pixels, form), shape)

    def of_encoded(encoded: tf.Tensor) -> tf.Tensor:
        return of_pixels(tf.map_fn(decode, encoded, fn_output_signature=tf.uint8))

    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint(PIXELS_SIGNATURE, of_pixels, [tf.TensorSpec((None, *shape), tf.uint8, "images")])
    archive.add_endpoint(ENCODED_SIGNATURE, of_encoded, [tf.TensorSpec((None,), tf.string, "encoded")])
    archive.write_out(str(folder), verbose=False)


def _write_litert(folder: Path, calibration: list[np.ndarray]) -> None:
    source = str(folder / SAVED_MODEL_NAME)
    for kind, name in LITERT_NAMES.items():
        converter = tf.lite.TFLiteConverter.from_saved_model(source, signature_keys=[PIXELS_SIGNATURE])
        if kind == "int8":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            examples = [(PIXELS_SIGNATURE, {"images": image[np.newaxis]}) for image in calibration]
            converter.representative_dataset = lambda examples=examples: iter(examples)
        (folder / name).write_bytes(converter.convert())


def _judged(folder: Path, shipped: TrainedNetwork, test: InputStream) -> dict:
    forms: dict[str, tuple[Path, Predict]] = {
        "SavedModel": (folder / SAVED_MODEL_NAME, saved_model(folder)),
        **{f"LiteRT {kind}": (folder / name, litert(folder, kind)) for kind, name in LITERT_NAMES.items()},
    }
    count = test.split.num_examples
    found = {
        name: {"bytes": used_bytes(path), "accuracy": 0, "agreement": 0, "largest_difference": 0.0}
        for name, (path, _) in forms.items()
    }
    for images, labels in test.evaluation().as_numpy_iterator():
        expected = shipped.probabilities(images)
        for name, (_, predict) in forms.items():
            _add(found[name], predict(images), expected, labels)
    for form in found.values():
        form |= {name: form[name] / count for name in ("accuracy", "agreement")}
    return {"num_examples": count, "forms": found}


def _add(form: dict[str, float], found: np.ndarray, expected: np.ndarray, labels: np.ndarray) -> None:
    given = found.argmax(axis=1)
    form["accuracy"] += int((given == labels).sum())
    form["agreement"] += int((given == expected.argmax(axis=1)).sum())
    form["largest_difference"] = max(form["largest_difference"], float(np.abs(found - expected).max()))


def _stream(folder: Path, manifest: Mapping, name: str) -> InputStream:
    split = open_split(folder, manifest, name)
    return InputStream(split, global_batch_size=min(_BATCH, split.num_examples), seed=0, in_memory=False)
