"""Words: what training says in sentences about figures that are missing.

No artefact's identity covers this module: rewording retrains nothing.
"""

from collections.abc import Mapping, Sequence

# What several processes have to share.
THE_CHECKPOINT = "the checkpoint they resume from, on one storage root"
THE_DEVICES = "device, number of devices and precision"
NOTHING_TRAINED = "no epoch was left to train, and the step is not compiled"


def too_long(step_seconds: float) -> str:
    """Why a step was not timed alone."""
    return f"a step took {step_seconds:.1f} s, too long to repeat it"


def too_long_compiling(step_seconds: float) -> str:
    """Why a step was not timed alone, where each epoch compiled."""
    return f"a step took {step_seconds:.1f} s with its compilation, too long to repeat it"


def not_in_file(name: str) -> str:
    """Why a layer keeps its own initial weights."""
    return f"no {name} there"


def other_shape(name: str, shape: tuple[int, ...], found: tuple[int, ...]) -> str:
    """The same."""
    return f"{name} has the shape {shape}, there {found}"


def refusal(setting: str, expected: str) -> str:
    """What was expected of a setting of [Train]."""
    return f"[Train] {setting}: expected {expected}."


def several_processes(processes: int) -> str:
    """Why a step was not timed alone."""
    return f"{processes} processes would have to time it together"


def with_test_time_augmentation(accuracies: Mapping[str, float]) -> str:
    """Accuracies by the prefix of a split's figures."""
    splits = {"val": "test", "validation": "validation"}
    figures = ", ".join(f"{splits[prefix]} accuracy {accuracy:.4f}" for prefix, accuracy in accuracies.items())
    return f"with test-time augmentation: {figures}"


def numbered_labels(names: Sequence[str], counts: Sequence[int], most: int) -> str:
    """Which label has which number, and of how many examples of train it is."""
    shown = [f"{at} {name} ({count:,})" for at, (name, count) in enumerate(zip(names, counts, strict=True))]
    more = f", and {len(shown) - most:,} more" if len(shown) > most else ""
    return f"labels, with their examples in train: {', '.join(shown[:most])}{more}"


def differences(differing: Mapping[str, tuple[object, object]]) -> str:
    """What a checkpoint was made with, and this process has not."""
    return "; ".join(f"{name} was {before!r}, is {now!r}" for name, (before, now) in differing.items())
