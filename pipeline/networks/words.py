"""Words: what is wrong with a network or a recipe of the user's own, in sentences.

No artefact's identity covers this module: rewording retrains nothing.
"""

_SIGNATURES = {
    "model": "build(input_shape, num_labels) → keras.Model",
    "recipe": "recipe(total_steps, scale) → optimizer, or a pipeline.networks.recipes.Recipe",
}
REGISTER = "Classes and functions of your own need @keras.saving.register_keras_serializable(), and no Lambda"


def refusal(setting: str, name: str, problem: str) -> str:
    """What was expected of the function that a setting of [Train] names, and what is wrong with it."""
    return f"[Train] {setting}: expected {_SIGNATURES[setting]}, got {name!r}: {problem}."


def raised(call: str, error: str) -> str:
    """That a call raised an error."""
    return f"{call} raised {error}"


def network_on(dtype: str, shape: tuple[int, ...]) -> str:
    """A call of the network."""
    return f"its network, on {dtype} images of the shape {shape},"


def wrong_shape(examples: int, num_labels: int, found: tuple[int, ...]) -> str:
    """That there is not one figure for each label."""
    expected = f"({examples}, {num_labels}), one figure for each of {num_labels} labels"
    return f"for {examples} images its outputs should have the shape {expected}; they have {found}"


def kind(found: object) -> str:
    """What an object is."""
    return "None" if found is None else f"an object of the class {type(found).__name__}"


def error_at(error: Exception, place: tuple[str, int] | None) -> str:
    """An error in one line, with the file and line where it was raised."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:400].rstrip('.')}"
    return f"{text} ({place[0]}, line {place[1]})" if place else text
