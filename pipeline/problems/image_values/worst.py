"""Predictions of images with several labels or numbers, as a table, and pictures of the worst ones."""

import csv
from pathlib import Path

import keras
import numpy as np

from pipeline.problems.classification import Predictions, quick_metrics, read_names
from pipeline.problems.image_classification.evaluation import TILES_PER_ROW, as_tiles, predict, write_sheet
from pipeline.problems.problem import PREDICTIONS_NAME, TEST_IMAGES_NAME, EvaluatedRun, examples_at

MAX_WORST = 24

__all__ = ["common_facts", "mean_loss", "predict", "quick_metrics"]


def mean_loss(model: keras.Model, predictions: Predictions) -> float:
    """Return the mean loss of the compiled model."""
    return float(keras.ops.mean(model.loss(predictions.labels, keras.ops.convert_to_tensor(predictions.outputs))))


def common_facts(predictions: Predictions, outputs: np.ndarray, errors: np.ndarray, run: EvaluatedRun) -> dict:
    """Write test_predictions.csv and the pictures of the worst predictions. Return facts of evaluation.json.

    ``outputs`` are the predictions without NaN, float (examples, values). ``errors`` float (examples,) ranks them.
    """
    names, keys = list(run.manifest["label_names"]), read_names(Path(run.test.split.files[0]).parent)
    labels, worst = predictions.labels, np.argsort(-errors, kind="stable")[:MAX_WORST].tolist()
    header = ["key", *(f"actual {name}" for name in names), *(f"predicted {name}" for name in names)]
    with (run.folder / PREDICTIONS_NAME).open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        rows = zip(keys, labels.tolist(), outputs.tolist(), strict=True)
        csv.writer(file).writerows(
            [header, *([key, *actual, *(f"{value:.6g}" for value in values)] for key, actual, values in rows)]
        )
    tiles = as_tiles(np.array([image for image, _ in examples_at(run.test, worst)], np.uint8))
    write_sheet(run.folder / TEST_IMAGES_NAME, tiles)
    return {
        "problem": run.manifest["problem"],
        "label_names": names,
        "counts": {split: entry["num_examples"] for split, entry in run.manifest["splits"].items()},
        "num_examples": len(labels),
        "data_warnings": [list(warning) for warning in run.manifest.get("warnings", ())],
        "worst": [
            {
                "index": index,
                "name": keys[index],
                "actual": labels[index].tolist(),
                "predicted": outputs[index].tolist(),
            }
            for index in worst
        ],
        "tiles": {"per_row": TILES_PER_ROW, "height": tiles.shape[1], "width": tiles.shape[2]},
    }
