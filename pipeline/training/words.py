"""Words: what training says in sentences about figures that are missing.

No artefact's identity covers this module: rewording retrains nothing.
"""

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
