"""Settings of the report: which runs it asks for, and what it demands of them; [Report]."""

import itertools
from dataclasses import dataclass
from typing import ClassVar

from pipeline.config.own_code import one_of_or_own
from pipeline.config.refusal import in_range, one_of, refuse
from pipeline.config.stage import MAX_SEED, StageSettings
from pipeline.config.training import (
    BACKENDS,
    DEVICES,
    MAX_GLOBAL_BATCH_SIZE,
    OWN_RECIPE,
    PRECISIONS,
    RECIPES,
    check_learning_rate,
)

# Each list of [Report], and the setting of [Train] it sweeps.
SWEPT = {
    "backends": "backend",
    "devices": "device",
    "global_batch_sizes": "global_batch_size",
    "seeds": "seed",
    "precisions": "precision",
    "recipes": "recipe",
    "learning_rates": "learning_rate",
}
# What may be demanded of the runs asked for, and the most that can be: beyond it nothing fails.
DEMANDS = {"min_val_accuracy": 1, "max_val_loss": 1_000, "max_regression_sigma": 1_000}


@dataclass(frozen=True, kw_only=True)
class ReportSettings(StageSettings):
    """Which runs the report asks for: the product of the lists, an empty one standing for [Train]'s own value."""

    section: ClassVar[str] = "Report"

    backends: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    global_batch_sizes: tuple[int, ...] = ()
    seeds: tuple[int, ...] = ()
    precisions: tuple[str, ...] = ()
    recipes: tuple[str, ...] = ()
    learning_rates: tuple[float, ...] = ()
    min_val_accuracy: float = 0.0
    max_val_loss: float = 0.0
    max_regression_sigma: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, choices in (("backends", BACKENDS), ("devices", DEVICES), ("precisions", PRECISIONS)):
            for value in getattr(self, name):
                one_of("Report", name, choices, value)
        for name, low, high in (("global_batch_sizes", 1, MAX_GLOBAL_BATCH_SIZE), ("seeds", 0, MAX_SEED)):
            for value in getattr(self, name):
                in_range("Report", name, value, low, high)
        for value in self.recipes:
            one_of_or_own("Report", "recipes", RECIPES, value, OWN_RECIPE)
        for value in self.learning_rates:
            check_learning_rate("Report", "learning_rates", value)
        # JSON has 1 and 1.0 for the same rate, a fingerprint has not.
        object.__setattr__(self, "learning_rates", tuple(map(float, self.learning_rates)))
        for name, high in DEMANDS.items():
            value = getattr(self, name)
            # Not a number compares false with everything.
            if not 0 <= value <= high:
                refuse("Report", name, f"a number from 0 to {high}", value)

    def combinations(self) -> list[dict[str, object]]:
        """[Train]'s settings of each run asked for, each run once, the last list changing fastest."""
        lists = {setting: getattr(self, name) for name, setting in SWEPT.items() if getattr(self, name)}
        products = itertools.product(*(dict.fromkeys(values) for values in lists.values()))
        return [dict(zip(lists, values, strict=True)) for values in products]
