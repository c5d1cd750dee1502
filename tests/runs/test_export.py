"""Export: each form is read by the tool it is for and says what Keras says."""

import json
import logging
import pkgutil
import subprocess
import sys

import numpy as np
import pytest
from luigi_process import FAST
from text_records import write_text_records
from training_runs import run

from pipeline.artifacts.manifest import MANIFEST_NAME, read_manifest, write_manifest
from pipeline.artifacts.stamps import VERIFIED_NAME
from pipeline.errors import DamagedArtifactError, SettingsError
from pipeline.problems.problem import open_split
from pipeline.records.features import ImageForm
from pipeline.runs.exporters import FLOAT32, INT8, ONNX, OPENVINO, SAVED_MODEL
from pipeline.runs.metrics import EXPORT_NAME, MODEL_NAME, WEIGHTS_NAME
from pipeline.settings.training import EXPORTERS
from pipeline.sources import placeholder_images


def setup_module() -> None:
    global InputStream, Split, export, keras, load_file, pixels_of, save_file, tf
    for package in ("ai_edge_litert", "onnx", "onnxruntime", "openvino", "tf2onnx"):
        pytest.importorskip(package, reason="the optional packages of export are not installed")
    import keras
    import tensorflow as tf
    from safetensors.numpy import load_file, save_file

    from pipeline.runs import export
    from pipeline.sources.reading import pixels_of
    from pipeline.streams.tf_data import InputStream, Split


FORMATS = ("saved_model", "litert", "litert_int8")
IMAGES, LABELS = placeholder_images.draw_block("test", 0, 101)

# Each needs a whole run, and most of them the exports of it.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(small_records, tmp_path_factory):
    """A run that has learnt something, so that its probabilities differ."""
    folder = tmp_path_factory.mktemp("runs") / "a"
    run(small_records, folder, epochs=6, model="baseline_cnn")
    return folder


@pytest.fixture(scope="module")
def exported(trained, small_records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    return folder, export.export(trained, small_records, folder, formats=EXPORTERS.builtin, calibration_examples=50)


def form_of(exporter, folder):
    return pkgutil.resolve_name(exporter.form).load(folder / exporter.file)


@pytest.fixture(scope="module")
def expected(trained):
    return keras.saving.load_model(trained / MODEL_NAME).predict(IMAGES, verbose=0)


def test_keras_loads_the_model_in_a_fresh_process_in_safe_mode_with_the_same_predictions(trained, expected, tmp_path):
    np.save(tmp_path / "images.npy", IMAGES)
    code = (
        "import sys, keras, numpy as np; images = np.load(sys.argv[2]); assert images.dtype == np.uint8; "
        "model = keras.saving.load_model(sys.argv[1], safe_mode=True); "
        "np.save(sys.argv[3], model.predict(images, verbose=0)); "
        "assert not [name for name in sys.modules if name.startswith(('pipeline', 'tasks'))]"
    )
    paths = [trained / MODEL_NAME, tmp_path / "images.npy", tmp_path / "found.npy"]
    subprocess.run([sys.executable, "-c", code, *paths], check=True, cwd=tmp_path, capture_output=True)
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy"), expected)


def test_the_saved_model_says_what_keras_says_of_pixels(exported, expected):
    np.testing.assert_allclose(form_of(SAVED_MODEL, exported[0])(IMAGES), expected, atol=1e-5)


def test_the_saved_model_says_the_same_of_encoded_images_of_any_size(exported, expected):
    loaded = tf.saved_model.load(str(exported[0] / SAVED_MODEL.file))
    encoded = [tf.io.encode_png(image).numpy() for image in IMAGES[:5]]
    (found,) = loaded.signatures[export.ENCODED_SIGNATURE](encoded=tf.constant(encoded)).values()
    np.testing.assert_allclose(found, expected[:5], atol=1e-5)
    # As the records have them, the middle cut out, and not stretched.
    wide = np.repeat(np.repeat(IMAGES[:1], 2, axis=1), 3, axis=2)[0]
    jpeg = tf.io.encode_jpeg(wide, quality=100).numpy()
    (found,) = loaded.signatures[export.ENCODED_SIGNATURE](encoded=tf.constant([jpeg])).values()
    pixels = pixels_of([jpeg], ImageForm(32, "crop", "image"), 3)
    np.testing.assert_allclose(found, form_of(SAVED_MODEL, exported[0])(pixels), atol=1e-5)


def test_litert_says_what_keras_says_in_float32_and_nearly_so_in_int8(exported, expected):
    np.testing.assert_allclose(form_of(FLOAT32, exported[0])(IMAGES), expected, atol=1e-5)
    quantised = form_of(INT8, exported[0])(IMAGES)
    assert np.abs(quantised - expected).max() < 0.1
    sizes = [(exported[0] / exporter.file).stat().st_size for exporter in (INT8, FLOAT32)]
    assert sizes[0] < sizes[1] / 3


@pytest.mark.parametrize("exporter", [ONNX, OPENVINO], ids=("onnx", "openvino"))
@pytest.mark.parametrize("count", [1, 32])
def test_onnx_and_openvino_say_what_keras_says_of_batches_of_any_size(exporter, count, exported, expected):
    np.testing.assert_allclose(form_of(exporter, exported[0])(IMAGES[:count]), expected[:count], atol=1e-5)


def test_onnx_names_its_input_and_output_as_export_json_does(exported):
    import onnxruntime

    folder, facts = exported
    session = onnxruntime.InferenceSession(folder / ONNX.file)
    assert [one.name for one in session.get_inputs()] == [facts["model"]["input"]] == ["images"]
    assert [one.name for one in session.get_outputs()] == [facts["model"]["output"]]
    assert facts["model"]["input_shape"] == [32, 32, 3]
    assert facts["model"]["image"]["resize"] == "crop"
    assert len(facts["model"]["label_names"]) == 10


def test_a_model_with_logits_is_exported_with_probabilities(trained, small_records, tmp_path):
    manifest = read_manifest(small_records)
    # Logits of some hundreds would turn a rounding error of 1e-7 into one of 2e-5 in the probabilities.
    scale = keras.layers.Rescaling(1 / 255)
    layers = [keras.Input((32, 32, 3), dtype="uint8"), scale, keras.layers.Flatten(), keras.layers.Dense(10)]
    job = export.TrainedModel(keras.Sequential(layers), "logits", manifest)
    export.Onnx.write(job, tmp_path / "model.onnx")
    found = export.Onnx.load(tmp_path / "model.onnx")(IMAGES[:3])
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(found, tf.nn.softmax(job.model(IMAGES[:3])), atol=1e-5)


def test_sizes_and_accuracies_are_those_of_the_files(exported, expected):
    folder, facts = exported
    assert json.loads((folder / EXPORT_NAME).read_text()) == facts
    assert facts["num_examples"] == 101
    accuracy = (expected.argmax(axis=1) == LABELS).mean()
    assert all(form["milliseconds"] > 0 and form["examples_per_second"] > 0 for form in facts["forms"].values())
    for name in ("SavedModel", "LiteRT float32", "ONNX", "OpenVINO"):
        assert facts["forms"][name]["accuracy"] == pytest.approx(accuracy)
        assert facts["forms"][name]["agreement"] == 1
        assert facts["forms"][name]["largest_difference"] < 1e-5
    path = folder / INT8.file
    assert facts["forms"]["LiteRT int8"]["bytes"] == path.stat().st_size
    # Of a network that has hardly learnt, many labels are a toss-up.
    assert facts["forms"]["LiteRT int8"]["agreement"] > 0.5


def test_agreement_is_with_the_model_that_is_shipped_in_its_own_precision(small_records, tmp_path):
    run(small_records, tmp_path / "a", precision="bfloat16", epochs=1, model="baseline_cnn")
    folder = tmp_path / "out"
    folder.mkdir()
    facts = export.export(tmp_path / "a", small_records, folder, formats=FORMATS, calibration_examples=20)
    images = np.concatenate([images for images, _ in _test_stream(small_records).evaluation().as_numpy_iterator()])
    shipped = keras.saving.load_model(tmp_path / "a" / MODEL_NAME)
    expected = shipped.predict_on_batch(images)
    forms = {
        "SavedModel": form_of(SAVED_MODEL, folder),
        "LiteRT float32": form_of(FLOAT32, folder),
        "LiteRT int8": form_of(INT8, folder),
    }
    for name, predict in forms.items():
        found = predict(images)
        agreement = (found.argmax(axis=1) == expected.argmax(axis=1)).mean()
        assert facts["forms"][name]["agreement"] == pytest.approx(agreement)
        assert facts["forms"][name]["largest_difference"] == pytest.approx(np.abs(found - expected).max())
        # In float32, it cannot be what bfloat16 says to the last digit.
        assert facts["forms"][name]["largest_difference"] > 1e-5


def _test_stream(records) -> "InputStream":
    return InputStream(open_split(records, read_manifest(records), "test"), global_batch_size=101, seed=0)


def test_a_run_that_was_skipped_has_nothing_to_export(small_records, tmp_path):
    run(small_records, tmp_path / "a", device="tpu", on_mismatch="skip")
    with pytest.raises(DamagedArtifactError, match="the run was skipped"):
        export.export(tmp_path / "a", small_records, tmp_path / "out", formats=FORMATS, calibration_examples=20)


def test_a_format_that_cannot_hold_a_model_is_named_with_its_remedy(tmp_path):
    records = write_text_records(tmp_path / "text")
    run(records, tmp_path / "a", epochs=1, model="char_lstm", global_batch_size=16)
    (tmp_path / "out").mkdir()
    before = logging.getLogger().level, [*logging.getLogger().filters]
    with pytest.raises(
        SettingsError, match=r"OpenVINO could not convert char_lstm \(OpConversionFailure\). Choose other"
    ):
        export.export(tmp_path / "a", records, tmp_path / "out", formats=["openvino"], calibration_examples=1)
    assert (logging.getLogger().level, logging.getLogger().filters) == before, "the converter left its own"


def test_the_stage_exports_the_run_once_and_the_report_says_what_each_form_is_worth(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    command = ["Export", *FAST, "--Export-calibration-examples", "20"]
    done = luigi.python("-m", "tasks", *command)
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr
    assert "LiteRT int8" in done.stdout
    (run_name,), (export_name,) = luigi.artifacts("runs"), luigi.artifacts("exports")
    assert done.stdout.endswith(f"Run:    {run_name}\nExport: {luigi.root / 'exports' / export_name}\n")
    again = luigi.here("tasks", *command)
    assert "building" not in again.stderr
    assert "Nothing to do. The export is fresh." in again.stderr
    assert again.stdout == done.stdout, "a fresh export is shown as a new one"
    assert luigi.here("tasks", "Report", *FAST).returncode == 0
    (facts,) = luigi.report()["exports"].values()
    assert set(facts["forms"]) == {"SavedModel", "LiteRT float32", "LiteRT int8"}
    assert "LiteRT int8" in (luigi.root / "report" / "report.html").read_text()
    assert "LiteRT int8" in (luigi.root / "report" / "report.md").read_text()
    # The settings of the run itself, in one format alone.
    done = luigi.here("tasks", "export", "--run", run_name, "--format", "onnx")
    assert done.returncode == 0, done.stderr
    assert "building runs" not in done.stderr
    assert "ONNX" in done.stdout
    assert "LiteRT" not in done.stdout
    assert [*luigi.artifacts("runs")] == [run_name]
    # Of other training, and of data that are not known yet.
    for setting in (("--Train-epochs", "7"), ("--Source-dataset", "mnist")):
        done = luigi.here("tasks", "export", "--run", run_name, *setting)
        assert done.returncode == 2
        assert f"--run: expected a run of the present code, data and configuration, got {run_name}." in done.stderr
    # Trained anew, as after a fallback, the run may have other weights: nothing was exported of these.
    (name,) = luigi.artifacts("runs")
    trained_anew(luigi.root / "runs" / name)
    assert luigi.here("tasks", "Report", *FAST).returncode == 0
    assert luigi.report()["exports"] == {}
    done = luigi.here("tasks", *command)
    assert "the weights changed" in done.stderr
    assert luigi.here("tasks", "Report", *FAST).returncode == 0
    assert len(luigi.report()["exports"]) == 1


def trained_anew(folder):
    """Give a published run other weights."""
    manifest = read_manifest(folder)
    weights = load_file(folder / WEIGHTS_NAME)
    save_file({name: values + np.float32(0.001) for name, values in weights.items()}, folder / WEIGHTS_NAME)
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | {"finished_at": "2031-01-01T00:00:00+00:00"}))
    for name in (MANIFEST_NAME, VERIFIED_NAME):
        (folder / name).unlink(missing_ok=True)
    details = {name: manifest[name] for name in ("run_id", "host", "seconds")}
    write_manifest(folder, stage="Train", identity=manifest["identity"], details=details)
