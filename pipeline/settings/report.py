"""Settings of the report: the requested runs and the thresholds they must pass; [Report]."""

import itertools
from typing import Annotated

from pipeline.settings.schema import NOT_IN_IDENTITY, StageSettings, number, settings_of
from pipeline.settings.training import TrainSettings

# Each list of [Report], and the setting of [Train] that it sweeps.
_SWEPT = ("backend", "device", "global_batch_size", "seed", "precision", "recipe", "learning_rate")
SWEPT = {f"{setting}s": setting for setting in _SWEPT}
# The thresholds.
DEMANDS = ("min_val_accuracy", "max_val_loss", "max_regression_sigma")
_RULES = {setting.name: setting.rule for setting in settings_of(TrainSettings)}


class ReportSettings(StageSettings, section="Report"):
    """The requested runs: the product of the lists. An empty list means the value of [Train].

    On the command line: luigi --module tasks Report --devices cpu,gpu --global-batch-sizes 256,512
    """

    # The identity of a report contains its runs instead.
    backends: Annotated[tuple[str, ...], _RULES["backend"], NOT_IN_IDENTITY] = ()
    """Backends to train with."""
    devices: Annotated[tuple[str, ...], _RULES["device"], NOT_IN_IDENTITY] = ()
    """Devices to train on."""
    global_batch_sizes: Annotated[tuple[int, ...], _RULES["global_batch_size"], NOT_IN_IDENTITY] = ()
    """Batch sizes to train with."""
    seeds: Annotated[tuple[int, ...], _RULES["seed"], NOT_IN_IDENTITY] = ()
    """Seeds to train with."""
    precisions: Annotated[tuple[str, ...], _RULES["precision"], NOT_IN_IDENTITY] = ()
    """Precisions to train in."""
    recipes: Annotated[tuple[str, ...], _RULES["recipe"], NOT_IN_IDENTITY] = ()
    """Recipes to train by."""
    learning_rates: Annotated[tuple[float, ...], _RULES["learning_rate"], NOT_IN_IDENTITY] = ()
    """Learning rates to train with."""
    min_val_accuracy: Annotated[float, number(0, 1)] = 0.0
    """Lowest test accuracy of the requested runs. If a threshold is set, a run that fails it, that was skipped, or
    that used a placeholder or another device ends with exit code 9, after the report is written. 0 means none."""
    max_val_loss: Annotated[float, number(0, 1_000)] = 0.0
    """Highest test loss of the requested runs in nats, for texts. 0 means none."""
    max_regression_sigma: Annotated[float, number(0, 1_000)] = 0.0
    """Largest fall of the test accuracy below the last comparable runs, in standard deviations of the noise. 3 means 1
    false alarm in 740. The noise is at least the sampling error of the test split, where five characters of a text
    count as one. It is judged after three earlier runs, or three runs of one code with other seeds. 0 means none."""

    def combinations(self) -> list[dict[str, object]]:
        """The settings of [Train] of each requested run. Each run occurs once, the last list changes fastest."""
        lists = {setting: getattr(self, name) for name, setting in SWEPT.items() if getattr(self, name)}
        products = itertools.product(*(dict.fromkeys(values) for values in lists.values()))
        return [dict(zip(lists, values, strict=True)) for values in products]
