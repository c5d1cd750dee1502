"""Models of keras.applications compute what Keras's own models compute after the preprocessing of their family.

No test has a network, so files of random weights stand for the published ones.
"""

import hashlib
import json

import numpy as np
import pytest
from luigi_process import FAST, IN_CHILD
from training_runs import QUICKLY_COMPILED, run

from pipeline.errors import SettingsError
from pipeline.runs.initial_weights import find_initial_weights
from pipeline.settings.training import KERAS_WEIGHTS, TrainSettings

# Of each family. Building all models takes a minute.
SMALLEST = (
    *("ConvNeXtTiny", "DenseNet121", "EfficientNetB0", "EfficientNetV2B0", "InceptionV3", "MobileNet", "MobileNetV2"),
    *("MobileNetV3Small", "NASNetMobile", "ResNet50", "ResNet50V2", "VGG16", "Xception"),
)
MOBILENET = "keras.applications:MobileNetV2"
# Ranges of statistics that differ from those of a new layer.
STATISTICS = {"mean": (0.4, 0.5), "variance": (0.2, 0.3), "moving_mean": (-0.1, 0.1), "moving_variance": (0.8, 1.2)}
SETTINGS = {"training_recipe": "fine_tuning", "epochs": 1, "global_batch_size": 64, "learning_rate": 1e-6}


def setup_module() -> None:
    global begin, build_model, keras, named_variables
    import keras

    from pipeline.models.build import build_model
    from pipeline.models.model import named_variables
    from pipeline.training.model import begin


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Keras's folder, with files of random weights, written when a test needs them."""
    return tmp_path_factory.mktemp("keras")


@pytest.fixture
def file_of(home, monkeypatch):
    """Function that returns the file of a model's weights, which is there."""
    monkeypatch.setenv("KERAS_HOME", str(home))

    def write(model):
        file = home / "models" / KERAS_WEIGHTS[model]
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            keras.utils.set_random_seed(7)
            application = getattr(keras.applications, model.partition(":")[2])(include_top=False, weights=None)
            rng = np.random.default_rng(0)
            for variable in application.weights:
                if bounds := STATISTICS.get(variable.path.rpartition("/")[2]):
                    variable.assign(rng.uniform(*bounds, variable.shape))
            application.save(file)
        return file

    return write


@pytest.mark.parametrize(
    "name", ["MobileNetV2", "ResNet50V2", "EfficientNetB0", "ResNet50", "Xception", "ConvNeXtTiny"]
)
def test_features_are_those_of_keras_with_weights_from_imagenet(name, file_of, tmp_path, monkeypatch):
    """The families preprocess differently, and EfficientNet has a layer more with these weights."""
    model = f"keras.applications:{name}"
    file = file_of(model)
    # Keras would refuse the digest of this file.
    monkeypatch.setattr("keras.src.utils.file_utils.get_file", lambda name, *_, **how: str(file))
    application = getattr(keras.applications, name)
    family = getattr(keras.applications, application.__module__.rpartition(".")[2])
    images = np.random.default_rng(1).integers(0, 256, (2, 96, 96, 3), np.uint8)
    reference = application(include_top=False, weights="imagenet", input_shape=(96, 96, 3), pooling="avg")
    expected = reference(family.preprocess_input(images.astype(np.float32)), training=False)

    built = build_model(model, (96, 96, 3), 5)
    initial = find_initial_weights("", tmp_path, model)
    beginning = begin(built, TrainSettings(model=model, fine_tune="head", epochs=1, augment=""), initial, None)
    assert beginning["left"] == {"logits": "missing logits/kernel"}
    assert {*beginning["frozen"]} <= {*beginning["taken"]}
    features = keras.Model(built.inputs[0], built.layers[-1].input)(images, training=False)
    # Random layers amplify rounding errors.
    assert np.linalg.norm(features - expected) < 1e-2 * np.linalg.norm(expected)


def test_images_with_one_channel_use_the_weights_of_all_three():
    gray, color = (build_model(MOBILENET, (32, 32, channels), 5) for channels in (1, 3))
    color.set_weights(gray.get_weights())
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 1), np.uint8)
    np.testing.assert_allclose(gray(images), color(np.repeat(images, 3, axis=-1)), rtol=1e-5)


def test_too_small_images_are_refused_with_the_least_side():
    with pytest.raises(SettingsError, match="Input size must be at least 71x71"):
        build_model("keras.applications:Xception", (32, 32, 3), 5)


def test_an_unknown_model_of_keras_is_refused():
    with pytest.raises(SettingsError, match=r"keras.applications has no MobileNetV9"):
        TrainSettings(model="keras.applications:MobileNetV9")
    with pytest.raises(SettingsError, match="expected auto, or one of"):
        TrainSettings(model="MobileNetV2")


@pytest.mark.slow
def test_the_files_are_those_that_keras_downloads(monkeypatch):
    names = {}

    class StopBeforeDownload(Exception):
        pass

    def get_file(name, *_, **how):
        names[model] = name
        raise StopBeforeDownload

    monkeypatch.setattr("keras.src.utils.file_utils.get_file", get_file)
    functions = {name for name in dir(keras.applications) if name[0].isupper()}
    assert {f"keras.applications:{name}" for name in functions} == {*KERAS_WEIGHTS}
    smallest = [f"keras.applications:{name}" for name in SMALLEST]
    for model in smallest:
        with pytest.raises(StopBeforeDownload):
            getattr(keras.applications, model.partition(":")[2])(include_top=False, weights="imagenet")
        keras.utils.clear_session()
    assert names == {model: KERAS_WEIGHTS[model] for model in smallest}


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "fine_tune"), [("tensorflow", "head_then_full"), ("jax", "head"), ("jax", "full")])
def test_each_part_is_trained_on_both_backends(backend, fine_tune, small_records, file_of, tmp_path, monkeypatch):
    for name, value in QUICKLY_COMPILED.items():
        monkeypatch.setenv(name, value)
    file_of(MOBILENET)
    initial = find_initial_weights("", tmp_path, MOBILENET)
    options = {**SETTINGS, "fine_tune": fine_tune, "backend": backend, "augment": ""}
    record = run(small_records, tmp_path / "run", model=MOBILENET, initial=initial, **options)
    assert record["initial_weights_digest"] == initial.digest
    frozen = record["beginning"]["frozen"]
    assert ("Conv1" in frozen, "bn_Conv1" in frozen) == (fine_tune == "head", True)
    assert (tmp_path / "run" / "model.keras").exists()


@pytest.mark.slow
def test_the_file_is_part_of_the_identity_and_a_run_without_it_says_where_to_put_it(first_run, tmp_path, file_of):
    home = tmp_path / "home"
    luigi = first_run.copy(tmp_path / "keras")
    args = [*FAST, "--Train-model", MOBILENET, "--Train-training-recipe", "fine_tuning", "--Train-fine-tune", "head"]
    name = KERAS_WEIGHTS[MOBILENET]
    states = luigi.status(*args, KERAS_HOME=str(home))
    assert states["Train"]["state"] == "waiting"
    assert states["Train"]["reasons"] == [f"for {name}, which a run downloads to {home / 'models'}"]
    assert not (home / "models").exists()
    refused = luigi(*args, KERAS_HOME=str(home), **IN_CHILD)
    assert refused.returncode == 3
    assert f"Download {name} on another machine, and copy it to {home / 'models'}" in " ".join(refused.stderr.split())

    (home / "models").mkdir(exist_ok=True)
    content = file_of(MOBILENET).read_bytes()
    (home / "models" / name).write_bytes(content)
    done = luigi(*args, KERAS_HOME=str(home))
    assert done.returncode == 0, done.stderr
    (run_name,) = (one for one in luigi.artifacts("runs") if one.startswith("keras.applications.MobileNetV2"))
    identity = json.loads((luigi.root / "runs" / run_name / "manifest.json").read_text())["identity"]
    assert identity["upstream"]["initial_weights"] == hashlib.sha256(content).hexdigest()
    assert "pipeline.models.keras_applications" in identity["code"]
    assert luigi.status(*args, KERAS_HOME=str(home))["Train"]["state"] == "fresh"
    # Another file is another run.
    (home / "models" / name).write_bytes(content + b"\0")
    assert "initial weights changed" in luigi.status(*args, KERAS_HOME=str(home))["Train"]["reasons"]
