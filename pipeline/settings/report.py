"""Settings of the report ([Report]), which contain the requested runs and their thresholds."""

import itertools
from typing import Annotated

from pipeline.errors import refuse
from pipeline.settings.schema import NOT_IN_IDENTITY, StageSettings, number, one_of, settings_of
from pipeline.settings.training import TrainSettings

# Settings of [Train] that a list of [Report] sweeps.
_SWEPT = ("backend", "device", "global_batch_size", "seed", "precision", "training_recipe", "learning_rate")
SWEPT = {f"{setting}s": setting for setting in _SWEPT}
#: Value of [Report] champion for the run before the newest one.
LAST = "last"
# The thresholds.
THRESHOLDS = ("min_test_accuracy", "max_test_loss", "max_regression_sigma")
_RULES = {setting.name: setting.rule for setting in settings_of(TrainSettings)}


class ReportSettings(StageSettings, section="Report"):
    """The requested runs and their thresholds. The lists form a grid. An empty list means the value of [Train].

    On the command line, pass the lists as flags, as in `--devices cpu,gpu --global-batch-sizes 256,512`.
    """

    # The identity of a report contains its runs instead.
    backends: Annotated[tuple[str, ...], _RULES["backend"], NOT_IN_IDENTITY] = ()
    """Backends of the requested runs."""
    devices: Annotated[tuple[str, ...], _RULES["device"], NOT_IN_IDENTITY] = ()
    """Devices of the requested runs."""
    global_batch_sizes: Annotated[tuple[int, ...], _RULES["global_batch_size"], NOT_IN_IDENTITY] = ()
    """Batch sizes of the requested runs."""
    seeds: Annotated[tuple[int, ...], _RULES["seed"], NOT_IN_IDENTITY] = ()
    """Seeds of the requested runs."""
    precisions: Annotated[tuple[str, ...], _RULES["precision"], NOT_IN_IDENTITY] = ()
    """Precisions of the requested runs."""
    training_recipes: Annotated[tuple[str, ...], _RULES["training_recipe"], NOT_IN_IDENTITY] = ()
    """Training recipes of the requested runs."""
    learning_rates: Annotated[tuple[float, ...], _RULES["learning_rate"], NOT_IN_IDENTITY] = ()
    """Learning rates of the requested runs."""
    min_test_accuracy: Annotated[float, number(0, 1)] = 0.0
    """Lowest test accuracy that a requested run may have. A run that misses a threshold ends the command with exit code
    9 after the report is written. If any threshold is set, the same applies to a skipped run, a placeholder dataset, a
    fallback device and a test loss that is not finite. 0 means no threshold."""
    max_test_loss: Annotated[float, number(0, 1_000)] = 0.0
    """Highest test loss that a requested run may have, for a text in nats. 0 means no threshold."""
    max_regression_sigma: Annotated[float, number(0, 1_000)] = 0.0
    """Largest allowed drop of the test accuracy from the last comparable runs, in standard deviations of the noise. A
    value of 3 gives 1 false alarm in 740. The noise is at least the sampling error of the test split, which counts five
    characters of a text as one. The check requires three earlier runs, or three runs of the same code with other seeds.
    0 means no threshold."""

    champion: Annotated[str, NOT_IN_IDENTITY] = ""
    """Run in use, with which the report compares the newest requested run on the same test examples. `champion` is the
    run that `tensorcraft promote` chose. `last` is the newest earlier run of the experiment with these examples. Any
    other value is the name of a run's folder. Empty means no comparison."""
    not_worse: Annotated[str, one_of("false", "true")] = "false"
    """Whether the newest requested run must not be worse than `champion`. It is worse if two equal models give so low a
    result with a probability below 5%. Without a champion, the run is not judged. `true` requires `champion`."""

    def check(self) -> None:
        """Refuse a threshold without the run that it requires."""
        if self.not_worse == "true" and not self.champion:
            refuse("Report", "champion", "a run, as not_worse = true compares with it", self.champion)

    def combinations(self) -> list[dict[str, object]]:
        """The [Train] settings of each requested run, without duplicates. The last list changes fastest."""
        lists = {setting: getattr(self, name) for name, setting in SWEPT.items() if getattr(self, name)}
        products = itertools.product(*(dict.fromkeys(values) for values in lists.values()))
        return [dict(zip(lists, values, strict=True)) for values in products]
