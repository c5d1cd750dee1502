import pytest

from pipeline.errors import SettingsError
from pipeline.settings.data import RUNNERS, RecordsSettings, SourceSettings
from pipeline.settings.report import ReportSettings
from pipeline.settings.storage import StorageSettings
from pipeline.settings.training import (
    RECIPES,
    ExportSettings,
    TrainSettings,
)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: StorageSettings(root=" "), ["[Storage] root: expected a folder on this machine", "--Storage-root"]),
        (lambda: StorageSettings(root="s3://bucket/data"), ["[Storage] root", "'s3://bucket/data'"]),
        (lambda: StorageSettings(root="file:/data"), ["[Storage] root", "'file:/data'"]),
        (
            lambda: StorageSettings(remote="s3://bucket/team", remote_endpoint="https://me:secret@localhost"),
            ["[Storage] remote_endpoint: expected an address", "got 'something else'"],
        ),
        (lambda: TrainSettings(epochs=0), ["[Train] epochs", "got 0", "--Train-epochs"]),
        (lambda: TrainSettings(model="baseline_cn"), ["[Train] model", "'baseline_cn'", "'baseline_cnn'"]),
        (lambda: TrainSettings(training_recipe="sgd"), ["[Train] training_recipe", "baseline, onecycle", "'sgd'"]),
        (
            lambda: TrainSettings(learning_rate=0.0),
            ["[Train] learning_rate: expected a number above 0", "-1 for the value of the training recipe"],
        ),
        (lambda: TrainSettings(learning_rate=float("nan")), ["[Train] learning_rate", "got nan"]),
        (lambda: TrainSettings(freeze="conv_(1"), ["[Train] freeze: expected a regular expression", "'conv_(1'"]),
        (lambda: TrainSettings(weight_decay=-0.1), ["[Train] weight_decay: expected a number from 0", "got -0.1"]),
        (lambda: TrainSettings(label_smoothing=1.0), ["[Train] label_smoothing", "not including 1", "got 1.0"]),
        (lambda: ReportSettings(learning_rates=(0.1, -2)), ["[Report] learning_rates", "got -2"]),
        (lambda: ReportSettings(learning_rates=("0.1",)), ["[Report] learning_rates", "got '0.1'"]),
        (lambda: ReportSettings(not_worse="true"), ["[Report] champion: expected a run, as not_worse", "got ''"]),
        (lambda: TrainSettings(device="cuda"), ["[Train] device", "auto, cpu, gpu, tpu"]),
        (lambda: TrainSettings(precision="float16"), ["[Train] precision"]),
        (lambda: TrainSettings(device="tpu", replicas=2), ["[Train] replicas: expected 1 on tpu", "got 2"]),
        (lambda: TrainSettings(jit_compile="yes"), ["[Train] jit_compile"]),
        (lambda: TrainSettings(seed=-1), ["[Train] seed", "got -1"]),
        (lambda: TrainSettings(global_batch_size=0), ["--Train-global-batch-size"]),
        (lambda: TrainSettings(seed=True), ["[Train] seed", "got True"]),
        (lambda: ReportSettings(devices=("cpu", "gp")), ["[Report] devices", "'gp'", "'gpu'", "--Report-devices"]),
        (lambda: ReportSettings(min_test_accuracy=73.0), ["[Report] min_test_accuracy: expected a number from 0 to 1"]),
        (lambda: ReportSettings(max_test_loss=-1.5), ["[Report] max_test_loss: expected a number from 0", "got -1.5"]),
        (lambda: ReportSettings(max_regression_sigma=float("nan")), ["[Report] max_regression_sigma", "got nan"]),
        (lambda: TrainSettings(profile_steps=-1), ["[Train] profile_steps", "got -1"]),
        (lambda: ReportSettings(seeds=("1",)), ["[Report] seeds: expected an integer", "got '1'"]),
        (lambda: ReportSettings(global_batch_sizes=(32, 0)), ["[Report] global_batch_sizes", "got 0"]),
        (lambda: ReportSettings(precisions=("float8",)), ["[Report] precisions", "bfloat16"]),
        (lambda: ReportSettings(training_recipes=("sgd",)), ["[Report] training_recipes", "baseline, onecycle"]),
        (lambda: RecordsSettings(train_shards=0), ["[Records] train_shards", "from 1 to 99999"]),
        (lambda: RecordsSettings(test_shards=100_000), ["[Records] test_shards"]),
        (lambda: RecordsSettings(validation_share=1.0), ["[Records] validation_share", "not including 1", "got 1.0"]),
        (lambda: RecordsSettings(validation_share=float("nan")), ["[Records] validation_share", "got nan"]),
        (lambda: RecordsSettings(runner="Direct Runner"), ["[Records] runner"]),
        (
            lambda: RecordsSettings(runner="FnApiRuner"),
            ["[Records] runner", "'FnApiRuner'", "Did you mean 'FnApiRunner'"],
        ),
        (
            lambda: RecordsSettings(runner="apache_beam.runners.moon.MoonRunner"),
            ["[Records] runner", "installed module"],
        ),
        (lambda: RecordsSettings(runner="no_such_package.Runner"), ["[Records] runner", "installed module"]),
        (
            lambda: RecordsSettings(runner="apache_beam.runners.direct.direct_runner.DirectRuner"),
            ["[Records] runner", "apache_beam.runners.direct.direct_runner has no DirectRuner"],
        ),
        (lambda: RecordsSettings(runner_options="direct_num_workers=2"), ["[Records] runner_options"]),
        (lambda: RecordsSettings(runner_options="--job_name='open"), ["[Records] runner_options"]),
        (lambda: SourceSettings(origin="web"), ["[Source] origin", "auto, tfds, placeholder"]),
        (lambda: SourceSettings(dataset="../cifar10"), ["[Source] dataset"]),
    ],
)
def test_refusal_names_setting_value_and_remedy(make, names):
    with pytest.raises(SettingsError) as refusal:
        make()
    for name in names:
        assert name in str(refusal.value)


def test_settings_have_no_rules_that_shape_bytes():
    # The digest of the code leaves settings out: a rule in them could change without a rebuild of what it shapes.
    reviewed = {SourceSettings: {"of_files", "has_path", "may_be_replaced"}, RecordsSettings: {"beam_flags"}}
    for settings in (SourceSettings, RecordsSettings, TrainSettings, ExportSettings):
        members = {name for name, value in vars(settings).items() if callable(value) or isinstance(value, property)}
        public = {name for name in members if not name.startswith("_")}
        assert public - {"check"} == reviewed.get(settings, set()), settings


def test_listed_choices_are_the_implemented_ones():
    from pipeline.models import training_recipes

    assert all(isinstance(RECIPES.load(name), training_recipes.Recipe) for name in RECIPES.builtin)


def test_listed_runners_are_beams():
    from apache_beam.options.pipeline_options import StandardOptions

    assert set(RUNNERS) == set(StandardOptions.KNOWN_RUNNER_NAMES)


@pytest.mark.parametrize(
    "name",
    [
        "direct",
        "flinkrunner",
        "apache_beam.runners.dask.dask_runner.DaskRunner",
        "apache_beam.runners.DirectRunner",
        # By a star, and one that is decided when the module is imported.
        "apache_beam.Pipeline",
        "apache_beam.runners.interactive.interactive_runner.InteractiveRunner",
    ],
)
def test_a_runner_may_be_named_as_beam_takes_it(name):
    assert RecordsSettings(runner=name).runner == name


def test_beam_flags_are_split_as_a_shell_splits():
    assert RecordsSettings(runner_options="--a=1 --b='x y'").beam_flags() == ["--a=1", "--b=x y"]


def test_lists_give_their_product_in_order_without_duplicates():
    settings = ReportSettings(devices=("gpu", "cpu"), seeds=(1, 0, 1))
    assert settings.combinations() == [
        {"device": "gpu", "seed": 1},
        {"device": "gpu", "seed": 0},
        {"device": "cpu", "seed": 1},
        {"device": "cpu", "seed": 0},
    ]


def test_a_learning_rate_is_one_setting_however_it_is_written():
    assert ReportSettings(learning_rates=(1, 0.5)).combinations() == [{"learning_rate": 1.0}, {"learning_rate": 0.5}]
    assert [type(one["learning_rate"]) for one in ReportSettings(learning_rates=(1,)).combinations()] == [float]


def test_without_lists_there_is_one_run_of_the_settings_of_train():
    assert ReportSettings().combinations() == [{}]
