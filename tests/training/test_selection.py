"""Which epoch a run keeps and when it ends: chosen on the validation split, and the same after a resume."""

import json

import pytest
from text_records import write_text_records
from training_runs import run, train_until

from pipeline.artifacts.manifest import read_manifest
from pipeline.errors import SettingsError
from pipeline.problems.image_classification import ImageClassification
from pipeline.problems.next_token import NextToken
from pipeline.problems.problem import EVALUATION_NAME, open_split
from pipeline.runs.metrics import METRICS_NAME, MODEL_NAME, WEIGHTS_NAME, read_metrics


def setup_module() -> None:
    global InputStream, Split, _log_epoch, best_epoch, has_lost_patience, keras, load_file, named_weights
    import keras
    from safetensors.numpy import load_file

    from pipeline.streams.tf_data import InputStream, Split
    from pipeline.training.loop import _log_epoch, best_epoch, has_lost_patience
    from pipeline.training.model import named_weights


@pytest.mark.parametrize(
    ("epoch", "loss", "accuracy", "seconds", "rate", "line"),
    [
        (2, 0.8501, 0.746, 28.24, 100.2, "Epoch 2/1000: loss 0.850, test accuracy 74.60%, 28.2 s, 100/s"),
        (1000, 9.8765, 1, 999.94, 987_654, "Epoch 1000/1000: loss 9.877, test accuracy 100.00%, 999.9 s, 987,654/s"),
    ],
)
def test_the_line_of_an_epoch_fits_a_terminal(epoch, loss, accuracy, seconds, rate, line, caplog):
    row = {"epoch": epoch, "loss": loss, "test_accuracy": accuracy, "train_seconds": seconds}
    with caplog.at_level("INFO"):
        _log_epoch(row | {"examples_per_second": rate}, 1000)
    assert caplog.messages == [line]
    assert len(f"12:00:00 {line}") <= 79


def rows(*values, figure="accuracy"):
    return [{f"validation_{figure}": value} for value in values]


@pytest.mark.parametrize(
    ("accuracies", "best"), [((0.1,), 1), ((0.1, 0.3, 0.2), 2), ((0.3, 0.3, 0.3), 1), ((0.1, 0.2, 0.4), 3)]
)
def test_the_best_epoch_is_the_first_of_the_greatest_accuracy(accuracies, best):
    assert best_epoch(rows(*accuracies), "accuracy") == best


@pytest.mark.parametrize(
    ("accuracies", "patience", "over"),
    [
        ((), 1, False),
        ((0.1,), 1, False),
        ((0.1, 0.1), 1, True),
        ((0.1, 0.2, 0.1), 2, False),
        ((0.1, 0.2, 0.1, 0.2), 2, True),
        ((0.4, 0.3, 0.2, 0.1), 0, False),
    ],
)
def test_patience_counts_the_epochs_since_the_best(accuracies, patience, over):
    assert has_lost_patience(rows(*accuracies), patience, "accuracy") is over


@pytest.mark.parametrize(
    ("losses", "best"), [((2.0, 1.5, 1.7), 2), ((1.5, 1.5), 1), ((float("nan"), 3.0), 2), ((float("nan"),) * 2, 1)]
)
def test_the_best_epoch_of_a_text_is_the_first_of_the_least_loss(losses, best):
    found = rows(*losses, figure="loss")
    assert best_epoch(found, "loss") == best
    assert has_lost_patience(found, 1, "loss") is (best < len(losses))


def test_a_text_is_chosen_by_its_loss_and_an_image_by_its_accuracy():
    assert (NextToken.chosen_by, ImageClassification.chosen_by) == ("loss", "accuracy")


@pytest.mark.parametrize("settings", [{"keep": "best"}, {"patience": 2}])
def test_without_a_validation_split_there_is_nothing_to_choose_on(small_records, tmp_path, settings):
    with pytest.raises(SettingsError, match=r"no validation split .* got .*\[Records\] validation_share"):
        run(small_records, tmp_path / "a", **settings)


@pytest.fixture(scope="module")
def divided_records(write_small_records):
    return write_small_records(validation_share=0.2)


# At this rate the later epochs are worse than the first ones.
WILD = {"epochs": 6, "training_recipe": "lamb", "scale_learning_rate": "none", "keep": "best", "patience": 2}


@pytest.fixture(scope="module")
def best(divided_records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("selection") / "best"
    return folder, run(divided_records, folder, **WILD)


@pytest.mark.slow
def test_the_best_epochs_weights_are_evaluated_and_saved(best, divided_records):
    folder, record = best
    figures = read_metrics(folder / METRICS_NAME)
    assert record["kept_epoch"] == best_epoch(figures, "accuracy") < len(figures)
    assert record["ended"] == ("epochs" if len(figures) == 6 else "patience")
    kept = figures[record["kept_epoch"] - 1]
    for name in ("test_accuracy", "test_loss", "validation_accuracy", "validation_loss"):
        assert record[name] == kept[name]
    facts = json.loads((folder / EVALUATION_NAME).read_text())
    assert facts["accuracy"] == pytest.approx(record["test_accuracy"], abs=1e-6)
    model = keras.saving.load_model(folder / MODEL_NAME, safe_mode=True)
    model.compile(metrics=["accuracy"], loss="sparse_categorical_crossentropy")
    held_out = open_split(divided_records, read_manifest(divided_records), "validation")
    stream = InputStream(held_out, global_batch_size=held_out.num_examples, seed=0)
    measured = model.evaluate(stream.evaluation(), verbose=0, return_dict=True)
    assert measured["accuracy"] == pytest.approx(record["validation_accuracy"], abs=1e-6)
    assert load_file(folder / WEIGHTS_NAME).keys() == named_weights(model).keys()


@pytest.mark.slow
def test_a_resumed_run_keeps_the_best_so_far(best, divided_records, tmp_path):
    folder, record = best
    train_until(record["kept_epoch"], divided_records, tmp_path, **WILD)
    resumed = run(divided_records, tmp_path / "resumed", checkpoints=tmp_path / "checkpoints", **WILD)
    assert resumed["epochs_restored"] == record["kept_epoch"] == resumed["kept_epoch"]
    assert resumed["ended"] == record["ended"]
    whole, other = ((path / WEIGHTS_NAME).read_bytes() for path in (folder, tmp_path / "resumed"))
    assert whole == other


@pytest.mark.slow
def test_the_run_of_a_text_keeps_the_epoch_of_the_least_loss(tmp_path):
    records = write_text_records(tmp_path / "text", validation_share=0.2)
    record = run(records, tmp_path / "a", model="char_lstm", training_recipe="adam", epochs=3, keep="best")
    figures = read_metrics(tmp_path / "a" / METRICS_NAME)
    kept = figures[record["kept_epoch"] - 1]
    assert record["kept_epoch"] == best_epoch(figures, "loss")
    assert record["validation_loss"] == pytest.approx(kept["validation_loss"], rel=1e-3)
    assert record["test_loss"] == pytest.approx(kept["test_loss"], rel=1e-3)
