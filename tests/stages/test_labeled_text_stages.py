"""Texts with labels through the stages, as users run them: from folders and a table to reports and predictions.

The label of a text says whether one word is in it. A tenth of the labels are flipped at random, so that no model can
expect more than 90% of the test labels. The lengths of the texts do not depend on the label.
"""

import csv
import json
import math
import random

import pytest
from luigi_process import Luigi

WORDS = ("river", "captain", "lantern", "garden", "sparrow", "baker", "mountain", "letter", "kettle", "sailor")
FLIPPED, TEXTS = 0.1, 4_000
FAST = ["--Train-epochs", "10", "--Train-global-batch-size", "64", "--Records-train-shards", "2", "--Train-seed", "3"]

pytestmark = pytest.mark.slow


def write_texts(top):
    rng = random.Random(0)
    for number in range(TEXTS):
        words, has_word = rng.choices(WORDS, k=rng.randint(5, 12)), rng.random() < 0.5
        words[rng.randrange(len(words))] = "copper" if has_word else "silver"
        label = has_word != (rng.random() < FLIPPED)
        path = top / ("with" if label else "without") / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{' '.join(words).capitalize()}.\n")
    return top


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Runs the pipeline on the texts, once with the default model."""
    top = tmp_path_factory.mktemp("labeled")
    luigi, luigi.texts = Luigi(top / "luigi", top), write_texts(top / "notes")
    done = luigi.here("tasks", "run", str(luigi.texts), *FAST)
    assert done.returncode == 0, done.stderr
    luigi.log = done.stderr
    luigi.write_config(f"[Source]\ndataset = text_folder\npath = {luigi.texts}")
    return luigi


def runs(luigi):
    return {run["model"]: run for run in luigi.report()["runs"]}


def test_the_default_model_learns_the_word_and_no_more_than_can_be_known(texts):
    run = runs(texts)["byte_cnn"]
    assert (run["problem"], run["dataset"]) == ("text_classification", "notes")
    count = run["evaluation"]["num_examples"]
    error = math.sqrt(FLIPPED * (1 - FLIPPED) / count)
    assert abs(run["test_accuracy"] - (1 - FLIPPED)) < 3 * error
    assert "contains the data of [Source] dataset = text_folder" in texts.log
    assert f"0 of {TEXTS:,} texts are longer" in texts.log
    assert "Chose model = byte_cnn" in texts.log


def test_a_model_that_sees_only_the_length_does_not(texts):
    done = texts(*FAST, "--Train-model", "tests.tiny_model:build_by_length", "--Train-training-recipe", "adam")
    assert done.returncode == 0, done.stderr
    run = runs(texts)["tests.tiny_model:build_by_length"]
    assert run["test_accuracy"] < 0.6


def test_the_report_shows_mistakes_as_text(texts):
    page = (texts.root / "report" / "report.html").read_text()
    evaluation = runs(texts)["byte_cnn"]["evaluation"]
    wrong = [item for item in evaluation["test_texts"] if item["label"] != item["predicted"]]
    assert len(wrong) >= 24
    for part in ("test texts, the 24 most confident first", wrong[0]["text"], "Confusion matrix", "By label"):
        assert part in page
    # A word has the wrong label in these texts.
    assert all(("copper" in item["text"]) == (item["predicted"] == 0) for item in wrong[:5])


def test_predict_and_export_give_the_labels(texts, tmp_path):
    for name, content in {
        "a.txt": "Copper river.",
        "b.txt": "Silver river.",
        "c.txt": b"caf\xe9",
        "d.csv": "text",
    }.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (run,) = [one for one in texts.artifacts("runs") if one.startswith("byte_cnn")]
    found = texts.command("predict", str(tmp_path), "--model", run, "--output", str(tmp_path / "out"))
    assert found.returncode == 0, found.stderr
    rows = [*csv.DictReader((tmp_path / "out" / "predictions.csv").open())]
    assert [(row["label"], row["error"].partition(":")[0]) for row in rows] == [
        ("with", ""),
        ("without", ""),
        ("", "not UTF-8 text"),
        ("", "a table, write each text to a file"),
    ]
    exported = texts.here("tasks", "Export", *FAST)
    assert exported.returncode == 0, exported.stderr
    (name,) = texts.artifacts("exports")
    forms = json.loads((texts.root / "exports" / name / "export.json").read_text())["forms"]
    assert {title: form["agreement"] > 0.99 for title, form in forms.items()} == dict.fromkeys(
        ("SavedModel", "LiteRT float32", "LiteRT int8"), True
    )
    import tensorflow as tf

    loaded = tf.saved_model.load(str(texts.root / "exports" / name / "saved_model"))
    encoded = tf.constant(
        ["\n Copper river.\r\n", "Silver river.", "Copper " + "é" * 500, "\ufeffCopper river.", "Copper river."]
    )
    (probabilities,) = loaded.signatures["utf8_texts"](encoded=encoded).values()
    assert probabilities.numpy().argmax(axis=1).tolist() == [0, 1, 0, 0, 0]
    assert probabilities[3].numpy().tolist() == probabilities[4].numpy().tolist(), "a byte order mark is no text"


def test_other_models_are_refused_and_verify_reads_the_records(texts):
    for model in ("char_lstm", "baseline_cnn"):
        refused = texts.here("tasks", "Report", "--Train-model", model)
        assert refused.returncode == 2
        assert "expected a model for texts such as byte_cnn, like the records" in refused.stderr
    verified = texts.command("verify")
    assert verified.returncode == 0, verified.stdout
