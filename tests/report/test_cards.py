"""The model card and the dataset card, as the Hugging Face Hub's own library reads them."""

import json
import re

import numpy as np
import pytest
from report_runs import RUN, SKIPPED, render, write_evaluation


def setup_module() -> None:
    global hub
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")


HOSTILE = '---\n"x": <script>alert(1)</script> | [x](http://evil.example)'


def card(folders, out, kind, name):
    render(folders, out)
    return kind((out / name).read_text(encoding="utf-8"))


def test_the_model_card_holds_the_result_as_the_hub_lists_it(make_run, tmp_path):
    found = card([write_evaluation(make_run())], tmp_path / "out", hub.ModelCard, "model-card.md")
    (result,) = found.data.eval_results
    assert (result.task_type, result.dataset_type, result.metric_type) == (
        "image-classification",
        "cifar10",
        "accuracy",
    )
    assert result.metric_value == RUN["test_accuracy"]
    assert found.data.library_name == "keras"
    assert found.data.datasets == ["cifar10"]
    assert "| test accuracy | 73.80% |" in found.text
    assert "cat, dog, ship" in found.text


@pytest.mark.parametrize("outputs", ["logits", "probabilities"])
def test_the_model_card_calls_what_the_network_gives_by_its_name(make_run, tmp_path, outputs):
    found = card([write_evaluation(make_run(outputs=outputs))], tmp_path / "out", hub.ModelCard, "model-card.md")
    assert f"{outputs} = model.predict(images)" in found.text
    assert ("probabilities = keras.ops.softmax(logits)" in found.text) == (outputs == "logits")


def test_the_model_card_of_a_run_without_a_model_file_names_the_code_that_builds_it(make_run, tmp_path):
    found = card([write_evaluation(make_run(model="own.nets:build"))], tmp_path / "out", hub.ModelCard, "model-card.md")
    assert 'model = load_trained(Path.cwd(), model="own.nets:build").model' in found.text
    assert "keras.saving.load_model" not in found.text


def test_the_dataset_card_holds_features_splits_and_size(make_run, tmp_path):
    found = card([write_evaluation(make_run())], tmp_path / "out", hub.DatasetCard, "dataset-card.md")
    info = found.data.to_dict()["dataset_info"]
    assert info["splits"] == [{"name": "train", "num_examples": 900}, {"name": "test", "num_examples": 90}]
    assert info["features"][1]["dtype"]["class_label"]["names"] == {"0": "cat", "1": "dog", "2": "ship"}
    assert found.data.size_categories == ["n<1K"]


def test_the_dataset_card_names_the_numbers_of_an_example_as_numbers(make_run, tmp_path):
    found = card([write_evaluation(make_run())], tmp_path / "out", hub.DatasetCard, "dataset-card.md")
    assert "\nLabels: cat, dog, ship.\n" in found.text
    value = {"mean": 0, "deviation": 2.0, **{name: [0, 0, 0] for name in ("mae", "rmse", "r2")}, "points": []}
    facts = {
        "problem": "regression", "label_names": ["x", "y"], "values": [value, value], "num_examples": 90, "worst": [],
        "counts": {"train": 900, "test": 90}, "tiles": {"per_row": 1, "height": 1, "width": 1},
    }  # fmt: skip
    folder = make_run("numbers", problem="regression")
    (folder / "evaluation.json").write_text(json.dumps(facts))
    found = card([folder], tmp_path / "out", hub.DatasetCard, "dataset-card.md")
    assert "\nNumbers: x, y.\n" in found.text


def test_a_stand_in_is_declared_and_claims_no_dataset(make_run, tmp_path):
    folder = write_evaluation(make_run(dataset="synthetic", dataset_verified=False))
    model = card([folder], tmp_path / "out", hub.ModelCard, "model-card.md")
    assert not model.data.datasets
    assert "Not a model for CIFAR-10" in model.text
    assert "Not CIFAR-10" in (tmp_path / "out" / "dataset-card.md").read_text()


def test_no_text_of_a_run_ends_the_front_matter_or_becomes_markup(make_run, tmp_path):
    folder = write_evaluation(make_run(model=HOSTILE, training_recipe=HOSTILE), labels=(HOSTILE, "dog", "ship"))
    for kind, name in ((hub.ModelCard, "model-card.md"), (hub.DatasetCard, "dataset-card.md")):
        found = card([folder], tmp_path / "out", kind, name)
        assert "x" not in found.data.to_dict()
        assert "<script" not in found.text
        assert not re.search(r"(?<!\\)\]\(", found.text)


@pytest.mark.parametrize("name", ["model-card.md", "dataset-card.md"])
def test_no_markup_stands_in_the_front_matter(make_run, tmp_path, name):
    render([write_evaluation(make_run(model=HOSTILE), labels=(HOSTILE, "dog", "ship"))], tmp_path / "out")
    assert not re.search("[<>]", (tmp_path / "out" / name).read_text(encoding="utf-8").split("\n---\n")[0])


@pytest.mark.parametrize(
    ("encoding", "said"),
    [("raw", "raw uint8 pixels, row by row"), ("jpeg", "a JPEG file"), ("image", "a JPEG or PNG file")],
)
def test_the_dataset_card_says_how_images_are_stored_and_the_model_card_what_size_it_takes(
    make_run, tmp_path, encoding, said
):
    records = {"encoding": encoding, "image_size": 64, "resize": "pad", "num_examples": 9, "total_bytes": 9}
    run = make_run(records=records, input_shape=[64, 64, 3], dataset="photos", dataset_verified=False)
    render([write_evaluation(run)], tmp_path / "out")
    dataset, model = ((tmp_path / "out" / name).read_text() for name in ("dataset-card.md", "model-card.md"))
    assert f"An example contains `image` ({said}), `label` and `key`." in dataset
    assert "Own data, no reference checksum." in dataset
    assert "Its inputs are images of 64 × 64 × 3 (height, width, channels)." in model
    assert "resized until the longer side fits and padded with black" in model


def instructions(card) -> str:
    """The Python of a card."""
    return re.search(r"```python\n(.*?)```", card.read_text(encoding="utf-8"), re.DOTALL)[1]


def test_the_model_cards_instructions_give_probabilities(first_run, monkeypatch):
    card = first_run.root / "report" / "model-card.md"
    height, width, channels = map(int, re.search(r"images of (\d+) × (\d+) × (\d+)", card.read_text()).groups())
    monkeypatch.chdir(next((first_run.root / "runs").iterdir()))
    given = {"images": np.zeros((2, height, width, channels), np.uint8)}
    exec(instructions(card), given)
    np.testing.assert_allclose(np.sum(given["probabilities"], axis=1), 1, rtol=1e-5)


def test_the_dataset_cards_instructions_read_the_train_split(first_run, monkeypatch):
    monkeypatch.chdir(first_run.root)
    given = {}
    exec(instructions(first_run.root / "report" / "dataset-card.md"), given)
    images = [image for image, _ in given["dataset"].as_numpy_iterator()]
    assert len(images) == 403
    assert images[0].shape == (32, 32, 3)


def test_a_run_that_diverged_or_was_made_before_there_were_evaluations_has_a_card(make_run, tmp_path):
    found = card([make_run(test_accuracy=float("nan"))], tmp_path / "out", hub.ModelCard, "model-card.md")
    assert "| test accuracy | – |" in found.text
    assert "No requested run" in (tmp_path / "out" / "dataset-card.md").read_text()


def test_a_report_on_runs_that_were_skipped_leaves_no_card_of_an_earlier_one(make_run, tmp_path):
    render([write_evaluation(make_run())], tmp_path / "out")
    render([make_run("skipped", curves=[], **SKIPPED)], tmp_path / "out")
    for name in ("model-card.md", "dataset-card.md"):
        assert (tmp_path / "out" / name).read_text().startswith("No requested run")


def test_of_a_text_the_dataset_card_counts_sequences_as_tfds_does(make_run, tmp_path):
    facts = {
        "problem": "next_token", "tokens": "characters", "vocabulary": list("abc"), "sequence_length": 32,
        "characters": {"train": 1_069 * 32, "test": 100 * 32}, "num_examples": 100, "loss": 1.5, "bits": 2.164,
        "perplexity": 4.48, "accuracy": 0.55, "position_loss": [1.5] * 32, "passages": [], "written": [],
    }  # fmt: skip
    folder = make_run(problem="next_token", dataset="text", requested_dataset="text")
    (folder / "evaluation.json").write_text(json.dumps(facts))
    found = card([folder], tmp_path / "out", hub.DatasetCard, "dataset-card.md")
    info = found.data.to_dict()["dataset_info"]
    assert info["splits"] == [{"name": "train", "num_examples": 1_069}, {"name": "test", "num_examples": 100}]
    assert found.data.size_categories == ["1K<n<10K"]
    assert "| train | 1,069 |" in found.text
    (folder / "evaluation.json").write_text(json.dumps(facts | {"sequence_length": 0}))
    card([folder], tmp_path / "out", hub.DatasetCard, "dataset-card.md")
    of_bytes = make_run("bytes", problem="next_token", tokens="bytes", dataset="text", requested_dataset="text")
    (of_bytes / "evaluation.json").write_text(json.dumps(facts | {"tokens": "bytes"}))
    found = card([of_bytes], tmp_path / "out", hub.ModelCard, "model-card.md")
    assert "byte" in found.text
    assert "character" not in found.text
