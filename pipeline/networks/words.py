"""Words: what is wrong with a network or a recipe of the user's own, in sentences.

No artefact's identity covers this module: rewording retrains nothing.
"""

_SIGNATURES = {
    "model": "build(input_shape, num_labels) → keras.Model",
    "recipe": "recipe(total_steps, scale) → optimizer, or a pipeline.networks.recipes.Recipe",
}
REGISTER = "Classes and functions of your own need @keras.saving.register_keras_serializable(), and no Lambda"

SEES_WHAT_COMES = (
    "its outputs depend on characters that come after their place, which they are to predict. Leave out Bidirectional, "
    'make convolutions padding="causal" and attention use_causal_mask=True'
)


def refusal(setting: str, name: str, problem: str) -> str:
    """What was expected of the function that a setting of [Train] names, and what is wrong with it."""
    return f"[Train] {setting}: expected {_SIGNATURES[setting]}, got {name!r}: {problem}."


def raised(call: str, error: str) -> str:
    """That a call raised an error."""
    return f"{call} raised {error}"


def network_on(dtype: str, shape: tuple[int, ...], examples: str) -> str:
    """A call of the network."""
    return f"its network, on {dtype} {examples} of the shape {shape},"


def examples_like(dtype: str, shape: tuple[int, ...]) -> str:
    """Examples as they are handed to a function."""
    return f"{dtype} {shape}"


def wrong_shape(expected: tuple[int, ...], found: tuple[int, ...], examples: str) -> str:
    """That there is not one figure for each label."""
    figures = f"{expected}, one figure for each of {expected[-1]} labels"
    return f"for {expected[0]} {examples} its outputs should have the shape {figures}; they have {found}"


def kind(found: object) -> str:
    """What an object is."""
    return "None" if found is None else f"an object of the class {type(found).__name__}"


def error_at(error: Exception, place: tuple[str, int] | None) -> str:
    """An error in one line, with the file and line where it was raised."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:400].rstrip('.')}"
    return f"{text} ({place[0]}, line {place[1]})" if place else text
