"""Settings of the report: the requested runs and the thresholds they must pass; [Report]."""

import dataclasses
import itertools
from typing import Annotated

from pipeline.config.schema import NOT_IN_IDENTITY, Rule, config_section, number, settings_of
from pipeline.config.stage import StageSettings
from pipeline.config.training import TrainSettings

# Each list of [Report], and the setting of [Train] that it sweeps.
SWEPT = {
    "backends": "backend",
    "devices": "device",
    "global_batch_sizes": "global_batch_size",
    "seeds": "seed",
    "precisions": "precision",
    "recipes": "recipe",
    "learning_rates": "learning_rate",
}
# The thresholds.
DEMANDS = ("min_val_accuracy", "max_val_loss", "max_regression_sigma")


def _each(name: str, example: str) -> Rule:
    """The rule of the setting of [Train] that a list sweeps."""
    (rule,) = (setting.rule for setting in settings_of(TrainSettings) if setting.name == SWEPT[name])
    return dataclasses.replace(rule, example=example)


@config_section("Report")
class ReportSettings(StageSettings):
    """The requested runs: the product of the lists. An empty list means the value of [Train].

    On the command line: luigi --module tasks Report --devices cpu,gpu --global-batch-sizes 256,512
    """

    # The identity of a report contains its runs instead.
    backends: Annotated[
        tuple[str, ...], _each("backends", '["tensorflow","jax"]'), "Backends to train with.", NOT_IN_IDENTITY
    ] = ()
    devices: Annotated[tuple[str, ...], _each("devices", '["cpu","gpu"]'), "Devices to train on.", NOT_IN_IDENTITY] = ()
    global_batch_sizes: Annotated[
        tuple[int, ...], _each("global_batch_sizes", "[256,512]"), "Batch sizes to train with.", NOT_IN_IDENTITY
    ] = ()
    seeds: Annotated[tuple[int, ...], _each("seeds", "[0,1,2]"), "Seeds to train with.", NOT_IN_IDENTITY] = ()
    precisions: Annotated[
        tuple[str, ...], _each("precisions", '["float32","bfloat16"]'), "Precisions to train in.", NOT_IN_IDENTITY
    ] = ()
    recipes: Annotated[
        tuple[str, ...], _each("recipes", '["baseline","onecycle"]'), "Recipes to train by.", NOT_IN_IDENTITY
    ] = ()
    learning_rates: Annotated[
        tuple[float, ...], _each("learning_rates", "[0.001,0.005]"), "Learning rates to train with.", NOT_IN_IDENTITY
    ] = ()
    min_val_accuracy: Annotated[
        float,
        number(0, 1),
        "Lowest test accuracy of the requested runs. If a threshold is set, a run that fails it, that was skipped, or "
        "that used a placeholder or another device ends with exit code 9, after the report is written. 0 means none.",
    ] = 0.0
    max_val_loss: Annotated[
        float, number(0, 1_000), "Highest test loss of the requested runs in nats, for texts. 0 means none."
    ] = 0.0
    max_regression_sigma: Annotated[
        float,
        number(0, 1_000),
        "Largest fall of the test accuracy below the last comparable runs, in standard deviations of the noise. 3 "
        "means 1 false alarm in 740. The noise is at least the sampling error of the test split, where five "
        "characters of a text count as one. It is judged after three earlier runs, or three runs of one code with "
        "other seeds. 0 means none.",
    ] = 0.0

    def combinations(self) -> list[dict[str, object]]:
        """The settings of [Train] of each requested run. Each run occurs once, the last list changes fastest."""
        lists = {setting: getattr(self, name) for name, setting in SWEPT.items() if getattr(self, name)}
        products = itertools.product(*(dict.fromkeys(values) for values in lists.values()))
        return [dict(zip(lists, values, strict=True)) for values in products]
