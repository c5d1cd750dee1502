"""Export of a run's model as a SavedModel for servers, and as LiteRT in float32 and int8 for devices.

The SavedModel has a signature for uint8 batches and one for encoded images (PNG or JPEG). The model is rebuilt in
float32 with the trained weights, because LiteRT does not compute in bfloat16. Each form classifies the test split and
is compared with the run's ``model.keras``.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from pipeline.artefacts.manifest import read_manifest
from pipeline.artefacts.space import used_bytes
from pipeline.networks.build import build_network
from pipeline.networks.model import LOGITS
from pipeline.records.features import form_of_any
from pipeline.records.images import fit
from pipeline.runs.metrics import EXPORT_NAME
from pipeline.runs.trained import TrainedNetwork, load_trained
from pipeline.stream import InputStream, Split

SAVED_MODEL_NAME = "saved_model"
LITERT_NAMES = {"float32": "model-float32.tflite", "int8": "model-int8.tflite"}

#: Signatures of the SavedModel: uint8 images (batch, height, width, channels), and strings (batch,).
PIXELS_SIGNATURE, ENCODED_SIGNATURE = "serving_default", "encoded_images"
_BATCH = 500

#: uint8 images (batch, height, width, channels) → probabilities (batch, labels).
Predict = Callable[[np.ndarray], np.ndarray]


def export(run: Path, records: Path, folder: Path, *, calibration_examples: int, model: str = "") -> dict:
    """Write every form of a run's model, and export.json, into an empty folder.

    Args:
        run: the run's folder.
        records: the folder of the records it was trained on.
        folder: the folder to write.
        model: [Train] model of the present settings, see ``load_trained``.
        calibration_examples: images of the train split that set the ranges of the int8 model.

    Returns:
        The contents of export.json: ``num_examples`` of the test split and, for each form, its ``bytes``, ``accuracy``,
        ``agreement`` (share of test images with the same label as by ``model.keras``) and ``largest_difference`` of a
        probability from that model's.

    Raises:
        DamagedArtefactError: the run was skipped and has no model.
    """
    manifest, shipped = read_manifest(records), load_trained(run, model=model)
    network = build_network(manifest, shipped.record.model, "float32")
    network.set_weights(shipped.model.get_weights())
    train, test = (_stream(records, manifest, name) for name in ("train", "test"))
    _write_saved_model(network, shipped.record.outputs, manifest["image"], folder / SAVED_MODEL_NAME)
    _write_litert(network, folder, _first(train, calibration_examples))
    return _judged(folder, shipped, test)


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

    def of_pixels(images: tf.Tensor) -> tf.Tensor:
        given = tf.cast(model(images, training=False), tf.float32)
        return tf.nn.softmax(given) if outputs == LOGITS else given

    def of_encoded(encoded: tf.Tensor) -> tf.Tensor:
        return of_pixels(tf.map_fn(_decode(shape, image["resize"]), encoded, fn_output_signature=tf.uint8))

    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint(PIXELS_SIGNATURE, of_pixels, [tf.TensorSpec((None, *shape), tf.uint8, "images")])
    archive.add_endpoint(ENCODED_SIGNATURE, of_encoded, [tf.TensorSpec((None,), tf.string, "encoded")])
    archive.write_out(str(folder), verbose=False)


def _decode(shape: tuple[int, int, int], resize: str) -> Callable[[tf.Tensor], tf.Tensor]:
    """An encoded image → uint8 of the model's shape, as in the records."""
    form = form_of_any(shape, resize)

    def decode(encoded: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_image(encoded, channels=shape[2], expand_animations=False)
        image.set_shape([None, None, shape[2]])
        return tf.ensure_shape(fit(image, form), shape)

    return decode


def _write_litert(model: keras.Model, folder: Path, calibration: np.ndarray) -> None:
    def examples() -> Iterator[dict[str, np.ndarray]]:
        for image in calibration:
            yield {"images": image[np.newaxis]}

    source = str(folder / SAVED_MODEL_NAME)
    for kind, name in LITERT_NAMES.items():
        converter = tf.lite.TFLiteConverter.from_saved_model(source, signature_keys=[PIXELS_SIGNATURE])
        if kind == "int8":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = lambda: ((PIXELS_SIGNATURE, example) for example in examples())
        (folder / name).write_bytes(converter.convert())


def _judged(folder: Path, shipped: TrainedNetwork, test: InputStream) -> dict:
    forms: dict[str, tuple[Path, Predict]] = {
        "SavedModel": (folder / SAVED_MODEL_NAME, saved_model(folder)),
        **{f"LiteRT {kind}": (folder / name, litert(folder, kind)) for kind, name in LITERT_NAMES.items()},
    }
    tallies = {name: {"right": 0, "agreeing": 0, "largest_difference": 0.0} for name in forms}
    for images, labels in test.evaluation().as_numpy_iterator():
        expected = shipped.probabilities(images)
        for name, (_, predict) in forms.items():
            _add(tallies[name], predict(images), expected, labels)
    count = test.split.num_examples
    facts = {
        "num_examples": count,
        "forms": {
            name: {
                "bytes": used_bytes(path),
                "accuracy": tallies[name]["right"] / count,
                "agreement": tallies[name]["agreeing"] / count,
                "largest_difference": tallies[name]["largest_difference"],
            }
            for name, (path, _) in forms.items()
        },
    }
    (folder / EXPORT_NAME).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return facts


def _add(tally: dict[str, float], found: np.ndarray, expected: np.ndarray, labels: np.ndarray) -> None:
    given = found.argmax(axis=1)
    tally["right"] += int((given == labels).sum())
    tally["agreeing"] += int((given == expected.argmax(axis=1)).sum())
    tally["largest_difference"] = max(tally["largest_difference"], float(np.abs(found - expected).max()))


def _stream(folder: Path, manifest: Mapping, name: str) -> InputStream:
    split = Split.of_manifest(folder, manifest, name)
    return InputStream(split, global_batch_size=min(_BATCH, split.num_examples), seed=0, in_memory=False)


def _first(stream: InputStream, count: int) -> np.ndarray:
    images = stream.evaluation().unbatch().take(count).map(lambda image, _: image)
    return np.array(list(images.as_numpy_iterator()))
