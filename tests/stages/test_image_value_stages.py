"""Tables with several labels or with numbers, from the command to the report, the predictions and the export."""

import csv
import json

import numpy as np
import pytest
from luigi_process import Luigi
from PIL import Image

from pipeline.predict.watch import reference
from pipeline.runs.record import read_record

pytestmark = pytest.mark.slow
FLAGS = ["--Train-epochs", "2", "--Train-precision", "float32", "--Records-train-shards", "2"]
NUM_IMAGES = 60
# JPEGs above 64 pixels stay encoded, so the records differ in length.
SIDE = 80


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("table"), np.random.default_rng(0)
    with (folder / "pairs.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("path", "tags", "level", "red"))
        for index in range(NUM_IMAGES):
            level, red = rng.integers(20, 230, 2).tolist()
            Image.new("RGB", (SIDE, SIDE), (red, level, level)).save(folder / f"{index}.jpg")
            tags = [name for name, is_there in (("<b>light</b>", level > 120), ("red", red > 120)) if is_there]
            rows.writerow((f"{index}.jpg", "|".join(tags), level / 10, red / 10))
    return folder / "pairs.csv"


@pytest.mark.parametrize(
    ("flags", "model", "problem", "shown", "columns"),
    [
        (
            ["--Source-label-column", "tags", "--Source-label-separator", "|", "--Records-validation-share", "0.2"],
            "build",
            "multi_label",
            ["Mean average precision", "greatest F1 on the validation split", "&lt;b&gt;light&lt;/b&gt;"],
            ["path", "labels", "error", "probability of <b>light</b>", "probability of red"],
        ),
        (
            ["--Source-label-column", "level,red"],
            # Only its code can build it.
            "build_subclassed",
            "regression",
            ["R² of level", "Mean absolute error of red", "Loss by epoch", "Intervals of 95%"],
            ["path", "level", "red", "error"],
        ),
    ],
)
def test_a_table_is_trained_reported_predicted_and_exported(tmp_path, table, flags, model, problem, shown, columns):
    luigi, flags = Luigi(tmp_path, tmp_path), [*flags, *FLAGS, "--Train-model", f"tests.tiny_model:{model}"]
    done = luigi.command("run", str(table), *flags)
    assert done.returncode == 0, done.stderr
    assert f"for the problem {problem}." in done.stderr
    (run,) = luigi.report()["runs"]
    assert (run["problem"], run["test_accuracy"] is None) == (problem, problem == "regression")
    page = (luigi.root / "report" / "report.html").read_text()
    assert ("images of 2 labels" in page) == (problem == "multi_label")
    assert [text for text in shown if text not in page] == []
    assert "<b>light</b>" not in page
    card = (luigi.root / "report" / "model-card.md").read_text()
    assert ("any number of the labels" in card, "The numbers, in the order" in card) == (
        problem == "multi_label",
        problem == "regression",
    )
    assert ("The validation split was held out" in card) == (problem == "multi_label")
    assert luigi.command("verify").returncode == 0
    if problem == "regression":
        # Refused before the training with this seed.
        done = luigi.command("run", str(table), *flags, "--Train-seed", "7", "--Report-min-test-accuracy", "0.5")
        assert done.returncode == 2
        assert "[Report] min_test_accuracy: expected 0, as regression has no accuracy, got 0.5." in done.stderr
        assert len(luigi.artifacts("runs")) == 1
    settings = ["--Source-dataset", "table", "--Source-path", str(table), *flags]
    done = luigi.command("predict", str(table.parent), *settings, "--output", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    rows = [*csv.DictReader((tmp_path / "out" / "predictions.csv").open())]
    assert [*rows[0]] == columns
    assert sum(not row["error"] for row in rows) == NUM_IMAGES
    (day,) = luigi.root.glob("watched/*/*.json")
    counts, folder = json.loads(day.read_text())["counts"], luigi.root / "runs" / day.parent.name
    assert {sum(bins.values()) for bins in counts.values()} == {NUM_IMAGES}
    expected = reference(luigi.root, folder, read_record(folder))
    assert expected.keys() == counts.keys()
    assert expected["size"] == counts["size"] == {"64 to 127 pixels": NUM_IMAGES}
    off = ["--Metrics-watch-predictions", "false", "--output", str(tmp_path / "out")]
    assert luigi.command("predict", str(table.parent), *settings, *off).returncode == 0
    assert json.loads(day.read_text())["counts"] == counts
    done = luigi.command("export", *settings)
    assert done.returncode == 0, done.stderr
    (exported,) = (luigi.root / "exports").iterdir()
    form = json.loads((exported / "export.json").read_text())["forms"]["SavedModel"]
    assert form["agreement"] > 0.99
    # Both are at the thresholds of the labels.
    accuracy = pytest.approx(run["evaluation"]["accuracy"], abs=1e-6) if problem == "multi_label" else None
    assert form["accuracy"] == accuracy
    assert ("test accuracy" in done.stdout) == (problem == "multi_label")
