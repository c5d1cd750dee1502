"""A text through the stages, as users run them: from a file to its report, and what is refused on the way."""

import pytest
from luigi_process import Luigi
from text_records import LINE

from pipeline.artifacts.manifest import read_manifest

SMALL = ["--Records-sequence-length", "20", "--Records-train-shards", "2", "--Records-test-shards", "1"]
TRAIN = ["--Train-model", "char_lstm", "--Train-training-recipe", "adam_cosine", "--Train-global-batch-size", "32"]
FAST = [*SMALL, *TRAIN, "--Train-epochs", "1"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    top = tmp_path_factory.mktemp("text")
    (top / "Some Text.txt").write_text(LINE * 80)
    luigi = Luigi(top / "luigi", top)
    luigi.write_config(f"[Source]\ndataset = text\npath = {top / 'Some Text.txt'}")
    return luigi


@pytest.mark.slow
def test_a_text_is_trained_on_and_reported(text):
    refused = text.here("tasks", "Report", *SMALL, "--Train-model", "baseline_cnn")
    assert refused.returncode == 2
    expected = "a model for texts such as char_lstm, like the records"
    assert f"[Train] model: expected {expected}, got 'baseline_cnn'" in refused.stderr
    assert not text.artifacts("records"), "refused before any data is prepared"
    done = text(*FAST)
    assert done.returncode == 0, done.stderr
    assert "sequences of 20 characters, " in done.stderr
    assert " different characters." in done.stderr
    assert "characters/s" in done.stdout
    assert "nats per character" in done.stdout
    (run,) = text.report()["runs"]
    assert (run["problem"], run["dataset"], run["dataset_verified"]) == ("next_token", "some_text", False)
    assert run["evaluation"]["sequence_length"] == 20
    assert run["division"] == {"by": "position", "test_share": 0.2, "validation_share": 0.0}
    (records,) = text.artifacts("records")
    assert read_manifest(text.root / "records" / records)["source"]["origin"] == "text"

    assert {name: stage["state"] for name, stage in text.status(*FAST).items()} == dict.fromkeys(
        ("Source", "Records", "Train", "Report"), "fresh"
    )
    assert text.here("tasks", "Report", *FAST).stderr.strip().endswith("Nothing to do. Every stage is fresh.")
    verified = text.command("verify")
    assert verified.returncode == 0, verified.stdout
    nightly = text.here("tasks", "Nightly", *FAST)
    assert nightly.returncode == 0, nightly.stderr

    export = text.here("tasks", "Export", *FAST)
    assert export.returncode == 0, export.stderr
    assert "SavedModel " in export.stdout
    assert "LiteRT" not in export.stdout
    export = text.here("tasks", "Export", *FAST, "--Export-formats=openvino")
    assert export.returncode == 2
    expected = "expected formats that can hold models of next_token (saved_model, onnx), got 'openvino'."
    assert f"[Export] formats: {expected}" in export.stderr
    (name,) = text.artifacts("runs")
    source, output = text.config.parent.parent / "Some Text.txt", text.root.parent / "predictions"
    predicted = text.command("predict", str(source), "--output", str(output))
    assert predicted.returncode == 0, predicted.stderr
    assert f"Predicted 1 of 1 texts with {name} to " in predicted.stdout
    assert (output / "predictions.csv").read_text().startswith('"path","predicted","nats"')

    damaged = text.root.parent / "damaged.txt"
    damaged.write_bytes(b"\xff\xfe\x00")
    unusable = text.command("predict", str(damaged), "--output", str(output))
    assert unusable.returncode == 2
    assert f"{damaged}: not UTF-8 text" in unusable.stderr
    assert "FILES: expected texts, got 1 unusable file." in unusable.stderr

    gate = text.here("tasks", "Report", *FAST, "--Report-min-test-accuracy", "0.99")
    assert gate.returncode == 9, gate.stderr

    source.write_text(source.read_text() + "More.\n")
    assert text.status(*FAST)["Source"] == {
        "state": "stale",
        "reasons": ["Some Text.txt has changed"],
        "remote": "",
    }


@pytest.mark.slow
def test_a_text_that_is_too_short_is_refused_before_it_is_written(tmp_path):
    (tmp_path / "short.txt").write_text("To be.")
    luigi = Luigi(tmp_path / "luigi", tmp_path)
    luigi.write_config(f"[Source]\ndataset = text\npath = {tmp_path / 'short.txt'}")
    done = luigi.here("tasks", "Report", *FAST)
    assert done.returncode == 2
    assert "[Records] sequence_length: expected fewer than the 6 characters of the train split, got 20" in done.stderr
