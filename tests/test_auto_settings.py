"""Settings that are ``auto``: the values that are chosen for number, size and kind of the examples."""

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from luigi_process import TINY, Luigi

from pipeline.errors import SettingsError
from pipeline.problems.image_classification import ImageClassification
from pipeline.problems.next_token import NextToken
from pipeline.records.features import chosen_image_size, image_spec
from pipeline.settings.training import MODELS, TrainSettings
from pipeline.sources.text import FEATURES

NAMES = {"model", "training_recipe", "global_batch_size", "epochs", "augment"}


@pytest.mark.parametrize(
    ("shape", "shorter_sides", "size"),
    [
        ((28, 28, 1), (28, 28, 28), 0),
        ((64, 48, 3), (48, 48, 48), 0),
        ((96, 96, 3), (96, 96, 96), 128),
        ((300, 300, 3), (0, 0, 0), 160),
        ((None, None, 3), (0, 0, 0), 160),
        ((None, None, 3), (143, 240, 442), 160),
        ((None, None, 3), (20, 240, 4_000), 160),
        ((None, None, 1), (60, 100, 500), 128),
        ((None, None, 3), (18, 45, 90), 40),
        ((None, None, 3), (2, 3, 5), 16),
    ],
)
def test_the_size_of_images_depends_on_their_median_shorter_side(shape, shorter_sides, size):
    assert chosen_image_size(image_spec(shape), shorter_sides) == size


def test_a_text_has_no_size_of_images():
    assert chosen_image_size(FEATURES, (0, 0, 0)) == 0


@pytest.mark.parametrize(
    ("problem", "shape", "num_examples", "model", "batch", "epochs"),
    [
        (ImageClassification(), (32, 32, 3), 50_000, "baseline_cnn", 128, 5),
        (ImageClassification(), (28, 28, 1), 60_000, "baseline_cnn", 128, 5),
        (ImageClassification(), (28, 28, 1), 1_000, "baseline_cnn", 64, 30),
        (ImageClassification(), (160, 160, 3), 2_914, "efficientnet_lite0", 32, 2),
        (ImageClassification(), (160, 160, 1), 48, "efficientnet_lite0", 16, 5),
        (ImageClassification(), (160, 160, 3), 100_000, "efficientnet_lite0", 32, 2),
        (NextToken(), (101,), 10_038, "char_lstm", 64, 18),
        (NextToken(), (101,), 1_000_000, "char_lstm", 64, 2),
    ],
)
def test_the_model_depends_on_the_kind_and_its_training_on_the_number_of_examples(
    problem, shape, num_examples, model, batch, epochs
):
    chosen = problem.chosen(TrainSettings(), shape, num_examples)
    assert chosen.keys() == NAMES
    assert (chosen["model"], chosen["global_batch_size"], chosen["epochs"]) == (model, batch, epochs)


@given(
    num_examples=st.integers(1, 10**9),
    model=st.sampled_from(sorted(set(MODELS.builtin))),
    replicas=st.integers(1, 8),
)
def test_every_choice_is_a_valid_setting(num_examples, model, replicas):
    settings = TrainSettings(model=model, replicas=replicas)
    chosen = ImageClassification().chosen(settings, (160, 160, 3), num_examples)
    assert chosen.keys() == NAMES - {"model"}
    assert TrainSettings(model=model, replicas=replicas, **chosen)
    if num_examples >= 160 * replicas:
        assert num_examples // chosen["global_batch_size"] >= 5


def test_a_head_that_is_fitted_once_has_one_epoch():
    settings = TrainSettings(fine_tune="head")
    assert ImageClassification().chosen(settings, (160, 160, 3), 2_914)["epochs"] == 1


@pytest.mark.parametrize("name", ["epochs", "global_batch_size"])
def test_another_word_than_auto_is_refused(name):
    with pytest.raises(SettingsError, match=f"{name}: expected auto, or an integer from 1"):
        TrainSettings(**{name: "automatic"})


def test_a_run_with_the_chosen_values_is_the_same_run_and_the_record_has_them(tmp_path, tiny_tfds):
    luigi = Luigi(tmp_path, tiny_tfds)
    # Three epochs of a tiny model, in place of the many that few examples get.
    done = luigi.here("tasks", "Report", *TINY, "--Train-epochs", "1")
    assert done.returncode == 0, done.stderr
    (run,) = (luigi.root / "runs").iterdir()
    record = json.loads((run / "run.json").read_text())
    chosen = {"training_recipe": "onecycle", "global_batch_size": record["global_batch_size"], "augment": ""}
    assert record["chosen"] == {"image_size": 0, **chosen}
    assert f"Chose training_recipe = onecycle, global_batch_size = {record['global_batch_size']}" in done.stderr
    explicit = [f"--Train-{name.replace('_', '-')}={value}" for name, value in chosen.items()]
    states = luigi.status(*TINY, "--Train-epochs", "1", "--Records-image-size", "0", *explicit)
    assert {name: state["state"] for name, state in states.items()}["Train"] == "fresh"


@pytest.mark.parametrize(
    ("manifest", "line"),
    [
        (
            {"problem": "text_classification", "feature_spec": {"text": {"shape": [71]}}, "label_names": ["no", "yes"]},
            "Data: 1,000 train texts of 71 bytes, 2 labels: no (600), yes (400). Chose epochs = 5 for them.",
        ),
        (
            {"problem": "image_classification", "image": {"shape": [8, 9, 3]}, "label_names": ["no", "yes"]},
            "Data: 1,000 train images of 8×9×3, 2 labels: no (600), yes (400). Chose epochs = 5 for them.",
        ),
    ],
    ids=["texts", "images"],
)
def test_the_line_before_the_training_states_number_size_labels_and_choice(manifest, line):
    from pipeline.problems import problem_of_records
    from pipeline.training.train import _described

    manifest = manifest | {"splits": {"train": {"num_examples": 1_000, "label_counts": {"no": 600, "yes": 400}}}}
    request = SimpleNamespace(chosen={"epochs": 5, "augment": ""})
    assert _described(request, manifest, problem_of_records(manifest)) == line
