"""A text, trained on: what the stream gives, which figures there are, what is written, and what is refused."""

import json
import math

import numpy as np
import pytest
from text_records import LENGTH, LINE, write_text_records
from training_runs import request_for, run

from pipeline.artifacts.manifest import read_manifest
from pipeline.errors import SettingsError
from pipeline.predict import Job
from pipeline.problems import problem_of_records
from pipeline.problems.problem import open_split
from pipeline.records.vocabulary import BYTES, Vocabulary
from pipeline.runs.metrics import MODEL_NAME
from pipeline.settings.data import RecordsSettings
from pipeline.settings.training import TrainSettings


def setup_module() -> None:
    global \
        InputStream, \
        Split, \
        request_fields, \
        keras, \
        load_trained, \
        build_for_task, \
        Crossentropy, \
        kind_of_outputs, \
        named_variables, \
        char_lstm, \
        passage, \
        predict, \
        surprises, \
        write_text
    import keras

    from pipeline.models.build import build_for_task, kind_of_outputs
    from pipeline.models.char_lstm import char_lstm
    from pipeline.models.model import Crossentropy, named_variables
    from pipeline.predict.job import predict
    from pipeline.predict.rows import surprises
    from pipeline.problems.next_token.evaluation import passage, write_text
    from pipeline.runs.load_model import load_trained
    from pipeline.streams.tf_data import InputStream, Split
    from pipeline.training.results import request_fields


def task_of(records):
    manifest = read_manifest(records)
    return problem_of_records(manifest).task(manifest)


OWN = """
import keras

layers = keras.layers


def embedded(size, n):
    tokens = keras.Input(size, dtype="uint8")
    return tokens, layers.Embedding(n, 8)(tokens)


def seeing(size, n):
    tokens, x = embedded(size, n)
    return keras.Model(tokens, layers.Dense(n)(layers.Conv1D(16, 5, padding="same")(x)))


def in_blocks(size, n):
    tokens, x = embedded(size, n)
    return keras.Model(tokens, layers.Dense(n)(layers.UpSampling1D(2)(layers.AveragePooling1D(2)(x))))


def flat(size, n):
    tokens, x = embedded(size, n)
    return keras.Model(tokens, layers.Dense(n)(layers.Flatten()(x)))


@keras.saving.register_keras_serializable(package="text_networks")
class Own(keras.Model):
    def __init__(self, n, **named):
        super().__init__(**named)
        self.n, self.embedding, self.dense = n, layers.Embedding(n, 8), layers.Dense(n)

    def call(self, tokens):
        return self.dense(self.embedding(tokens))

    def get_config(self):
        return {**super().get_config(), "n": self.n}


def a_class(size, n):
    return Own(n)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    (folder / "text_networks.py").write_text(OWN)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return write_text_records(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module", autouse=True)
def small_lstm():
    """Let char_lstm have 32 units instead of 256: it learns the text of the tests as well."""
    from pipeline.models import char_lstm

    lstm = char_lstm._lstm
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(char_lstm, "_lstm", lambda *shape, **how: lstm(*shape, **how | {"units": (32,)}))
        yield


@pytest.fixture(scope="module")
def trained(records, tmp_path_factory):
    """A run with smoothed labels, so that the loss that is trained on is not the one that is evaluated."""
    folder = tmp_path_factory.mktemp("runs") / "a"
    settings = {"model": "char_lstm", "training_recipe": "adam_cosine", "epochs": 2, "global_batch_size": 16}
    return folder, run(records, folder, **settings, label_smoothing=0.1)


@pytest.mark.parametrize("in_memory", [True, False])
def test_labels_are_the_tokens_one_place_later(records, in_memory):
    manifest = read_manifest(records)
    split = open_split(records, manifest, "train")
    stream = InputStream(split, global_batch_size=32, seed=0, in_memory=in_memory)
    batches = list(stream.training(0).as_numpy_iterator())
    assert len(batches) == stream.steps_per_epoch == split.num_examples // 32
    assert stream.predictions_per_epoch == len(batches) * 32 * LENGTH
    text = Vocabulary(tuple(manifest["label_names"])).encode(LINE * 2).tobytes()
    for tokens, labels in batches:
        assert (tokens.dtype, tokens.shape, labels.dtype, labels.shape) == (
            np.uint8,
            (32, LENGTH),
            np.int32,
            (32, LENGTH),
        )
        np.testing.assert_array_equal(tokens[:, 1:], labels[:, :-1])
        assert all(row.tobytes() in text for row in tokens)


def test_a_run_says_its_problem_and_its_loss_is_the_mean_of_nats(records, trained):
    folder, record = trained
    assert (record["problem"], record["outputs"]) == ("next_token", "logits")
    assert record["test_examples"] == read_manifest(records)["splits"]["test"]["num_examples"] * LENGTH
    assert record["input_shape"] == [LENGTH]
    facts = json.loads((folder / "evaluation.json").read_text())
    assert facts["loss"] == pytest.approx(record["test_loss"], abs=1e-6)
    assert facts["bits"] == pytest.approx(facts["loss"] / math.log(2))
    assert facts["perplexity"] == pytest.approx(math.exp(facts["loss"]))
    assert np.mean(facts["position_loss"]) == pytest.approx(facts["loss"], abs=1e-4)
    assert facts["passages"][0]["loss"] >= facts["passages"][-1]["loss"]
    assert facts["passages"][0]["nats"][0] is None
    assert facts["loss"] < math.log(len(facts["vocabulary"]))


def test_the_network_that_writes_has_the_trained_weights(records, trained):
    folder, _ = trained
    model = load_trained(folder).model
    stateful = char_lstm((1,), model.output_shape[-1], batch_size=2)
    for name, variable in named_variables(model).items():
        named_variables(stateful)[name].assign(variable)
    tokens = np.tile(np.arange(LENGTH, dtype=np.uint8) % 20, (2, 1))
    step_by_step = [stateful(tokens[:, place : place + 1], training=False)[:, 0] for place in range(LENGTH)]
    np.testing.assert_allclose(np.stack(step_by_step, axis=1), model(tokens, training=False), atol=1e-4)


def test_generated_text_depends_on_the_seed(trained):
    folder, _ = trained
    facts = json.loads((folder / "evaluation.json").read_text())
    model = load_trained(folder).model
    model.compile(loss=Crossentropy("logits"))
    vocabulary = Vocabulary(tuple(facts["vocabulary"]))
    first = facts["written"][0]
    prompt = vocabulary.encode(first["prompt"])
    # A sequence that is shorter than a prompt, with its last token.
    assert len(prompt) == LENGTH + 1
    again, other = (
        write_text(model, vocabulary, "char_lstm", prompt, length=LENGTH, seed=seed, tokens=30) for seed in (0, 1)
    )
    assert [one["temperature"] for one in again] == [0.5, 0.8, 1.0]
    assert again[0]["text"] == first["text"][:30]
    assert again[2]["text"] != other[2]["text"]
    # By sequences instead of by steps, as a network of one's own is asked.
    by_sequences, by_steps = (
        write_text(model, vocabulary, network, prompt[:3], length=LENGTH, seed=0, tokens=LENGTH - 3)
        for network in ("own:network", "char_lstm")
    )
    assert by_sequences == by_steps


@pytest.mark.slow
def test_a_subclassed_model_trains_and_generates_text(package, records, tmp_path):
    folder = tmp_path / "a"
    record = run(records, folder, model="text_networks:a_class", training_recipe="onecycle", epochs=1)
    assert record["input_shape"] == [LENGTH]
    written = json.loads((folder / "evaluation.json").read_text())["written"]
    assert [len(one["text"]) for one in written] == [400, 400, 400]
    tokens = np.zeros(3 * LENGTH + 2, np.uint8)
    assert len(surprises(load_trained(folder), tokens)) == 3 * LENGTH + 1


def test_a_saved_subclassed_model_generates_text(package, records, trained, tmp_path):
    manifest, name = read_manifest(records), "text_networks:a_class"
    build_for_task(problem_of_records(manifest).task(manifest), name, "float32").save(tmp_path / MODEL_NAME)
    (tmp_path / "run.json").write_text(json.dumps(trained[1] | {"model": name}))
    loaded, tokens = load_trained(tmp_path), np.zeros(3 * LENGTH + 2, np.uint8)
    assert len(surprises(loaded, tokens)) == 3 * LENGTH + 1
    loaded.model.compile(loss=Crossentropy("logits"))
    vocabulary = Vocabulary(tuple(manifest["label_names"]))
    written = write_text(loaded.model, vocabulary, name, tokens[:3], length=LENGTH, seed=0, tokens=2 * LENGTH)
    assert [len(one["text"]) for one in written] == [2 * LENGTH] * 3


def test_label_smoothing_leaves_the_loss_that_is_evaluated_in_nats(trained, records):
    folder, record = trained
    network, probabilities, labels = load_trained(folder), [], []
    test = InputStream(open_split(records, read_manifest(records), "test"), global_batch_size=8, seed=0)
    for tokens, of_them in test.evaluation().as_numpy_iterator():
        probabilities.append(network.probabilities(tokens))
        labels.append(of_them)
    given, labels = np.concatenate(probabilities), np.concatenate(labels)
    nats = -np.log(np.take_along_axis(given, labels[..., None], axis=2))
    assert record["test_loss"] == pytest.approx(float(nats.mean()), abs=1e-4)
    assert record["test_accuracy"] == pytest.approx(float((given.argmax(axis=2) == labels).mean()))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("seeing", "depend on later characters"),
        ("in_blocks", "depend on later characters"),
        ("flat", "instead of (4, 20,"),
    ],
)
def test_a_network_of_ones_own_that_cannot_be_is_refused(package, records, function, words):
    with pytest.raises(SettingsError) as refused:
        kind_of_outputs(task_of(records), f"text_networks:{function}", "float32")
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": "baseline_cnn"}, "model: expected a model for text"),
        ({"model": "char_lstm", "augment": "flip"}, "augment: expected nothing for records of texts"),
    ],
)
def test_image_settings_are_refused_before_training(records, tmp_path, settings, words):
    with pytest.raises(SettingsError, match=words):
        run(records, tmp_path / "a", **settings)


def test_a_network_for_text_is_refused_for_images(small_records):
    problem = problem_of_records(read_manifest(small_records))
    with pytest.raises(SettingsError, match="model: expected a model for images"):
        problem.check(TrainSettings(model="char_lstm"))


def test_texts_have_their_nats(records, trained, tmp_path):
    folder, record = trained
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text(LINE * 12)
    (texts / "b.txt").write_text("The dog é")
    (texts / "c.txt").write_bytes(b"\xff")
    names = tuple(read_manifest(records)["label_names"])
    settings = RecordsSettings()
    found = predict(Job(str(folder), names, "next_token"), [str(texts)], tmp_path / "out", settings)
    assert (found["files"], found["errors"]) == (3, 2)
    import pyarrow.parquet

    first, second, third = pyarrow.parquet.read_table(tmp_path / "out" / "predictions.parquet").to_pylist()
    assert first["predicted"] == len(LINE * 12) - 1
    assert first["nats"] == pytest.approx(record["test_loss"], abs=0.1)
    assert "'\\xe9'" in second["error"]
    assert "not UTF-8 text" in third["error"]


def test_of_a_text_of_more_characters_than_fit_bytes_are_counted(records, trained, tmp_path):
    manifest = read_manifest(records) | {"label_names": list(BYTES)}
    problem = problem_of_records(manifest)
    assert (problem.tokens, problem.units.rate) == ("bytes", "bytes/s")
    _, record = trained
    assert record["tokens"] == ""
    assert request_fields(request_for(records, tmp_path), manifest)["tokens"] == "bytes"


def test_a_passage_of_bytes_is_shown_by_characters():
    vocabulary = Vocabulary(BYTES)
    found = passage(vocabulary, vocabulary.encode("aé"), np.array([1.0, 2.0]))
    assert found == {"loss": 1.5, "pieces": ["a", "é"], "nats": [None, 3.0]}


def test_shapes_are_static(records):
    task = problem_of_records(read_manifest(records)).task(read_manifest(records))
    model = build_for_task(task_of(records), "char_lstm", "float32")
    assert model.output_shape == (None, *task.output_shape)
    assert isinstance(model, keras.Model)
