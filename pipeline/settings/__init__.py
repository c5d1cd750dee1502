"""Settings of the pipeline, with one dataclass per section of config.ini. They are validated when they are made."""

from pipeline.settings.data import RecordsSettings, SourceSettings
from pipeline.settings.experiments import ExperimentSettings
from pipeline.settings.report import ReportSettings
from pipeline.settings.schema import Settings
from pipeline.settings.storage import ForceSettings, MetricsSettings, NotifySettings, StorageSettings
from pipeline.settings.training import ExportSettings, TrainSettings

#: All sections of config.ini.
SECTIONS: tuple[type[Settings], ...] = (
    *(StorageSettings, ExperimentSettings, ForceSettings, NotifySettings, MetricsSettings),
    *(SourceSettings, RecordsSettings, TrainSettings, ReportSettings, ExportSettings),
)
