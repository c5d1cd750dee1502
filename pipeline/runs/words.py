"""Words: what is wrong with initial weights, or with a repetition, in a sentence.

No artefact's identity covers this module: rewording retrains nothing.
"""

from collections.abc import Sequence


def no_weights(given: str, suffixes: Sequence[str], problem: str) -> str:
    """What was expected as initial weights, what came, and what is wrong with it."""
    expected = f"the folder of a run with weights, or a file that ends in {' or '.join(suffixes)}"
    return f"[Train] initial_weights: expected {expected}, got {given!r}: {problem}."


def cannot_be_compared(run: str, what: str, first: object, second: object) -> str:
    """Why training again says nothing of whether the weights come out the same."""
    return (
        f"Repetition: {run} was trained with {what} {first}, here it is {second}: that would say nothing of its "
        "kernels. Repeat it on a machine like that which it was trained on, with the same [Train] device, backend, "
        "precision and cache."
    )
