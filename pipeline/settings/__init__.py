"""Settings of the pipeline, with one dataclass per section of config.ini. They are validated when they are made."""

from pipeline.settings.data import RecordsSettings, SourceSettings
from pipeline.settings.report import ReportSettings
from pipeline.settings.schema import Settings
from pipeline.settings.storage import SECTIONS_WITHOUT_STAGE
from pipeline.settings.training import ExportSettings, TrainSettings

#: All sections of config.ini.
SECTIONS: tuple[type[Settings], ...] = (
    *SECTIONS_WITHOUT_STAGE,
    *(SourceSettings, RecordsSettings, TrainSettings, ReportSettings, ExportSettings),
)
