"""Networks and recipes of a user's own: what they give is found out, and what is wrong with them is said."""

import logging
from dataclasses import replace

import numpy as np
import pytest
from own_package import forget, write_package

from pipeline.errors import SettingsError
from pipeline.problems.next_token import NextToken
from pipeline.records.features import Task
from pipeline.settings.report import ReportSettings
from pipeline.settings.training import MODELS, TrainSettings


def setup_module() -> None:
    global \
        keras, \
        Crossentropy, \
        as_probabilities, \
        build_model, \
        find_recipe, \
        kind_of_outputs, \
        make_optimizer, \
        named_variables, \
        save_copy
    import keras

    from pipeline.models.build import build_model, find_recipe, kind_of_outputs, save_copy
    from pipeline.models.model import Crossentropy, as_probabilities, named_variables
    from pipeline.models.training_recipes import make_optimizer


SHAPE, LABELS = (32, 32, 3), 5
TASK = Task(SHAPE, 256, (), 5)
START = "import keras\nlayers = keras.layers\n"
FLAT = "layers.Flatten()"
UNSAVED = ["cannot be saved and loaded", "register_keras_serializable"]


def stack(*inside: str, shape: str = "s") -> str:
    """A function that builds a stack of these layers."""
    return f"def build(s, n):\n    return keras.Sequential([keras.Input({shape}), {', '.join(inside)}])"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A function that writes the package, with modules of these names more."""
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield lambda **more: write_package(tmp_path, **more)
    forget()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(("function", "kind"), [("build", "logits"), ("sure", "probabilities")])
def test_the_output_kind_of_a_model_is_detected(package, function, kind, precision):
    package()
    assert kind_of_outputs(TASK, f"my_package.networks:{function}", precision) == kind


def test_the_output_kind_of_built_in_models_needs_no_build():
    kinds = {name: kind_of_outputs(TASK, name, "float32") for name in MODELS}
    airbench = {"airbench_convnet", "airbench_convnet_small", "airbench_convnet_large"}
    logits = {"mnist_dense", "efficientnet_lite0", *airbench, *NextToken.models}
    assert {name for name, kind in kinds.items() if kind == "logits"} == logits


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_logits_have_the_loss_of_their_probabilities(smoothing):
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(7, LABELS)).astype(np.float32), np.arange(7) % LABELS
    probabilities = as_probabilities(logits, "logits")
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    losses = [
        Crossentropy(kind, smoothing)(labels, keras.ops.convert_to_tensor(outputs))
        for kind, outputs in (("logits", logits), ("probabilities", probabilities))
    ]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_weights_of_models_in_models_have_names_of_their_own(package, tmp_path):
    package()
    keras.utils.clear_session()
    model = build_model("my_package.networks:sure", SHAPE, LABELS)
    assert [name for name in named_variables(model) if name.startswith("inner/")] == [
        "inner/conv2d/kernel", "inner/conv2d/bias"]  # fmt: skip
    copy = save_copy(model, tmp_path / "model.keras", SHAPE)
    assert named_variables(copy).keys() == named_variables(model).keys()


@pytest.mark.parametrize(
    ("activation", "kind", "expected"),
    [("'sigmoid'", "probabilities", [[0.25, 0.75]]), ("None", "logits", [[-0.5493, 0.5493]])],
)
def test_one_output_for_two_labels_becomes_an_output_per_label(package, activation, kind, expected):
    # ln 3 is the logit of 3 / 4.
    head = "kernel_initializer='zeros', bias_initializer=keras.initializers.Constant(1.0986123)"
    package(other=START + stack(FLAT, f"layers.Dense(1, {activation}, {head})"))
    assert kind_of_outputs(replace(TASK, num_labels=2), "my_package.other:build", "float32") == kind
    outputs = build_model("my_package.other:build", SHAPE, 2)(np.zeros((1, *SHAPE), np.uint8))
    np.testing.assert_allclose(outputs, expected, atol=1e-4)
    np.testing.assert_allclose(as_probabilities(np.asarray(outputs), kind), [[0.25, 0.75]], atol=1e-4)


def test_one_output_for_more_labels_is_refused(package):
    package(other=START + stack(FLAT, "layers.Dense(1, 'sigmoid')"))
    with pytest.raises(SettingsError, match=r"outputs have the shape \(4, 1\) instead of \(4, 5\)"):
        kind_of_outputs(TASK, "my_package.other:build", "float32")


@pytest.mark.parametrize("kind", ["layers.Layer", "keras.Model"])
def test_layers_and_models_in_the_package_of_the_user_need_no_registration(package, kind):
    mine = f"class Mine({kind}):\n    def __init__(self, units, **kwargs):\n        super().__init__(**kwargs)\n"
    mine += "        self.units, self.dense = units, layers.Dense(units)\n\n    def call(self, x):\n"
    mine += "        return self.dense(keras.ops.reshape(keras.ops.cast(x, 'float32'), (-1, 3072)))\n\n"
    mine += "    def get_config(self):\n        return {**super().get_config(), 'units': self.units}\n"
    package(mine=START + mine, other=START + "from my_package.mine import Mine\n" + stack("Mine(n)"))
    assert kind_of_outputs(TASK, "my_package.other:build", "float32") == "logits"


@pytest.mark.parametrize("seed", ["None", "self.seeds"])
def test_random_operations_whose_state_is_not_in_the_model_are_reported(package, caplog, seed):
    noise = "class Noise(layers.Layer):\n    def __init__(self, **kwargs):\n        super().__init__(**kwargs)\n"
    noise += "        self.seeds = keras.random.SeedGenerator(1)\n\n    def call(self, x, training=False):\n"
    noise += f"        return x + keras.random.normal(keras.ops.shape(x), seed={seed}) if training else x\n\n"
    known = "layers.RandomFlip(), layers.Rescaling(1 / 255), layers.BatchNormalization(), layers.Dropout(0.5), Noise()"
    package(other=START + noise + stack(known, FLAT, "layers.Dense(n)"))
    kind_of_outputs(TASK, "my_package.other:build", "float32")
    assert ("Pass a keras.random.SeedGenerator to them." in caplog.text) == (seed == "None")


def test_a_subclassed_model_that_keras_cannot_save_is_built_by_its_code(package, caplog):
    package()
    caplog.set_level(logging.INFO)
    assert kind_of_outputs(TASK, "my_package.subclassed:build", "float32") == "logits"
    assert "Only the code of my_package.subclassed:build can build the model" in caplog.text


def test_a_subclassed_model_of_another_size_at_each_call_is_refused(package):
    count = "import itertools\ncount = itertools.count(3)\n"
    build = "def build(s, n):\n    return Network([layers.Conv2D(next(count), 3), layers.Flatten(), layers.Dense(n)])"
    package(other=START + count + "from my_package.subclassed import Network\n" + build)
    with pytest.raises(SettingsError, match="it builds models with different weights"):
        kind_of_outputs(TASK, "my_package.other:build", "float32")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("build = 3", ["build((32, 32, 3), 5) raised TypeError: 'int' object is not callable"]),
        ("def build(input_shape):\n    pass", ["build((32, 32, 3), 5) raised TypeError"]),
        ("def build(input_shape, num_labels):\n    pass", ["it returned None, not a keras.Model"]),
        ("def build(input_shape, num_labels):\n    return num_labels / 0", ["ZeroDivisionError", "other.py, line 4"]),
        (stack(FLAT, "layers.Dense(n + 1)"), ["have the shape (4, 6) instead of (4, 5)"]),
        (stack("layers.Dense(n)"), ["have the shape (4, 32, 32, 5)"]),
        (stack(FLAT, "layers.Dense(n)", shape="(8, 8, 3)"), ["(uint8 (4, 32, 32, 3)) raised"]),
        (
            "def build(s, n):\n    i = keras.Input(s)\n    x = layers.Dense(n)(layers.Flatten()(i))\n"
            "    return keras.Model(i, [x, x])",
            ["has 2 outputs"],
        ),
        (
            stack(FLAT, "layers.Dense(n, 'sigmoid')"),
            ["a sigmoid returns neither logits nor probabilities. Use softmax or no activation"],
        ),
        (
            stack(FLAT, "layers.Dense(n, keras.ops.sigmoid)"),
            ["a sigmoid returns neither logits nor probabilities. Use softmax or no activation"],
        ),
        # Whose outputs add up to 1 all the same.
        (
            stack(FLAT, "layers.Dense(n, 'sigmoid', kernel_initializer='zeros', "
            "bias_initializer=keras.initializers.Constant(-1.3862944))"),
            ["a sigmoid returns neither logits nor probabilities. Use softmax or no activation"],
        ),
        (stack("layers.Lambda(lambda x: x / 2)", FLAT, "layers.Dense(n)"), UNSAVED),
        (
            "class Mine(layers.Layer):\n    def __init__(self, f):\n        super().__init__()\n        self.f = f\n\n"
            "    def call(self, x):\n        return self.f(x)\n\n\n"
            + stack("Mine(keras.ops.relu)", FLAT, "layers.Dense(n)"),
            UNSAVED,
        ),
        ("import my_package.not_there", ["importing it raised ModuleNotFoundError", "other.py, line 3"]),
    ],
)  # fmt: skip
def test_an_invalid_model_is_refused_with_the_expected_value(package, text, words):
    package(other=START + text)
    with pytest.raises(SettingsError) as refusal:
        kind_of_outputs(TASK, "my_package.other:build", "float32")
    for word in [
        "[Train] model: expected build(input_shape, num_labels) → keras.Model",
        "my_package.other:build",
        *words,
    ]:
        assert word in str(refusal.value)


def test_a_recipe_is_a_function_or_a_recipe(package):
    package()
    plain, smoothed = (find_recipe(f"my_package.recipes:{name}") for name in ("recipe", "smoothed"))
    assert (plain.label_smoothing, smoothed.label_smoothing) == (0.0, 0.2)
    settings = TrainSettings(global_batch_size=256, scale_learning_rate="linear")
    optimizer = make_optimizer(smoothed, settings, total_steps=10)
    assert float(optimizer.learning_rate) == pytest.approx(0.2)
    settings = TrainSettings(global_batch_size=128, learning_rate=0.03)
    assert float(make_optimizer(plain, settings, total_steps=10).learning_rate) == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("recipe = 3", "recipe(10, 1.0) raised TypeError: 'int' object is not callable"),
        (
            "def recipe(total_steps, scale):\n    return 'adam'",
            "it returned 'adam', not a Keras optimizer",
        ),
        ("def recipe(total_steps):\n    pass", "recipe(10, 1.0) raised TypeError"),
    ],
)
def test_an_invalid_recipe_is_refused_with_a_reason(package, text, words):
    package(other=text)
    with pytest.raises(SettingsError) as refusal:
        find_recipe("my_package.other:recipe").optimizer(10, 1.0)
    assert "[Train] training_recipe: expected recipe(total_steps, scale) → optimizer" in str(refusal.value)
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("model", "my_package.networks:bild", "my_package.networks has no bild."),
        ("model", "my_package.network:build", "There is no module my_package.network."),
        ("model", "not_there:build", "There is no module not_there. It is looked for in the working directory"),
        ("model", "my_package.networks:", "a function in user code such as my_package.networks:build"),
        ("model", "my package:build", "a function in user code such as my_package.networks:build"),
        ("model", "my_package.broken:build", "my_package.broken is no Python that could be read"),
        ("model", "my_package.networks", "one of baseline_cnn"),
        ("training_recipe", "my_package.recipes:receipt", "my_package.recipes has no receipt."),
    ],
)
def test_errors_visible_without_an_import_are_settings_errors(package, setting, value, words):
    package(broken="def build(:\n")
    with pytest.raises(SettingsError) as refusal:
        TrainSettings(**{setting: value})
    assert f"[Train] {setting}: expected auto, or one of" in str(refusal.value)
    assert words in str(refusal.value)
    with pytest.raises(SettingsError, match=r"\[Report\] training_recipes"):
        ReportSettings(training_recipes=("my_package.recipes:receipt",))


def test_functions_that_are_there_are_taken(package):
    package()
    assert (
        TrainSettings(model="my_package.networks:build", training_recipe="my_package.recipes:smoothed").epochs == "auto"
    )
    assert ReportSettings(training_recipes=("lamb", "my_package.recipes:recipe")).combinations()[1] == {
        "training_recipe": "my_package.recipes:recipe"
    }
