"""Words: what initial weights had to be, in a sentence.

No artefact's identity covers this module: rewording retrains nothing.
"""

from collections.abc import Sequence


def no_weights(given: str, suffixes: Sequence[str], problem: str) -> str:
    """What was expected as initial weights, what came, and what is wrong with it."""
    expected = f"the folder of a run with weights, or a file that ends in {' or '.join(suffixes)}"
    return f"[Train] initial_weights: expected {expected}, got {given!r}: {problem}."
