"""Learning problems. A problem defines everything that differs between images and text.

``problem.py`` has the protocol for training. ``results.py`` describes how runs are ranked, reported and used.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pipeline.errors import SettingsError
from pipeline.registry import Registry

if TYPE_CHECKING:
    from pipeline.problems.problem import Problem

#: The name in records and runs → the problem's class.
PROBLEMS = Registry(
    "problems",
    {
        "image_classification": "pipeline.problems.image_classification:ImageClassification",
        "text_classification": "pipeline.problems.text_classification:TextClassification",
        "next_token": "pipeline.problems.next_token:NextToken",
        "multi_label": "pipeline.problems.image_values:MultiLabel",
        "regression": "pipeline.problems.image_values:Regression",
    },
)


def problem_class(name: str) -> type["Problem"]:
    """Return the class of a problem. Raises SettingsError if no installed package provides it."""
    if name not in PROBLEMS:
        raise SettingsError(
            f"problem: expected one of {', '.join(PROBLEMS)}, got {name!r}. Install the package of this problem, which "
            "the source was built with."
        )
    return PROBLEMS.load(name)


def problem_of_records(manifest: Mapping) -> "Problem":
    """Return the problem of the records that a manifest describes. Raises SettingsError if no package provides it."""
    name = manifest.get("problem") or _by_features(manifest["feature_spec"])
    return problem_class(name).of_records(manifest)


def _by_features(spec: Mapping) -> str:
    """Return the problem of records of earlier versions, whose manifests do not name it."""
    return next(name for name in PROBLEMS.builtin if PROBLEMS.load(name).features.keys() <= spec.keys())
