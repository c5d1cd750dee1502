"""Every setting of the pipeline as frozen, validated dataclasses: one per section of config.ini.

Validation happens here, once, before any work: a stage that holds a settings object may trust it. Choices are listed
here rather than imported from the modules that implement them, so that refusing a misspelt name never waits for
TensorFlow to be imported; a test holds each list against its implementation.

    storage.py    [Storage], [Notify], [Metrics], [Force]
    data.py       [Source], [Records]
    training.py   [Train], [Export], [Repetition]
    membership.py which of several processes this is
    augment.py    the operations of [Train] augment
    report.py     [Report]
    experiment.py [Experiment], and the settings files in experiments/
    stage.py      what every stage has
    own_code.py   functions of one's own as settings
    refusal.py    how a setting is refused
"""

from pipeline.config.augment import parse_augment, spelled
from pipeline.config.data import (
    FULL_RANGE,
    OF_FILES,
    ORIGINS,
    PLACEHOLDER,
    RUNNERS,
    TEXT,
    TEXTS,
    RecordsSettings,
    SourceSettings,
    folder_hint,
)
from pipeline.config.experiment import (
    ExperimentSettings,
    description,
    experiment_files,
    experiment_of,
    published_files,
    require_experiment,
    settings_in,
)
from pipeline.config.membership import Membership, membership
from pipeline.config.own_code import is_own, own_modules
from pipeline.config.refusal import closest, refuse
from pipeline.config.report import DEMANDS, SWEPT, ReportSettings
from pipeline.config.storage import STAGES, ForceSettings, MetricsSettings, NotifySettings, StorageSettings
from pipeline.config.training import (
    JAX,
    MODELS,
    OF_THE_RECIPE,
    RECIPES,
    TENSORFLOW,
    TEXT_MODELS,
    TPU_ADDRESS,
    ExportSettings,
    RepetitionSettings,
    TrainSettings,
    check_keras_environment,
    names_tpu,
    refuse_replicas,
    refuse_without_validation,
)

__all__ = [
    "DEMANDS",
    "FULL_RANGE",
    "JAX",
    "MODELS",
    "OF_FILES",
    "OF_THE_RECIPE",
    "ORIGINS",
    "PLACEHOLDER",
    "RECIPES",
    "RUNNERS",
    "STAGES",
    "SWEPT",
    "TENSORFLOW",
    "TEXT",
    "TEXTS",
    "TEXT_MODELS",
    "TPU_ADDRESS",
    "ExperimentSettings",
    "ExportSettings",
    "ForceSettings",
    "Membership",
    "MetricsSettings",
    "NotifySettings",
    "RecordsSettings",
    "RepetitionSettings",
    "ReportSettings",
    "SourceSettings",
    "StorageSettings",
    "TrainSettings",
    "check_keras_environment",
    "closest",
    "description",
    "experiment_files",
    "experiment_of",
    "folder_hint",
    "is_own",
    "membership",
    "names_tpu",
    "own_modules",
    "parse_augment",
    "published_files",
    "refuse",
    "refuse_replicas",
    "refuse_without_validation",
    "require_experiment",
    "settings_in",
    "spelled",
]
