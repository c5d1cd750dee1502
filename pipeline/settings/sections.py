"""All sections of config.ini."""

from pipeline.settings.data import RecordsSettings, SourceSettings
from pipeline.settings.experiments import ExperimentSettings
from pipeline.settings.report import ReportSettings
from pipeline.settings.schema import Settings
from pipeline.settings.storage import ForceSettings, MetricsSettings, NotifySettings, StorageSettings
from pipeline.settings.training import ExportSettings, TrainSettings

SECTIONS: tuple[type[Settings], ...] = (
    *(StorageSettings, ExperimentSettings, ForceSettings, NotifySettings, MetricsSettings),
    *(SourceSettings, RecordsSettings, TrainSettings, ReportSettings, ExportSettings),
)
