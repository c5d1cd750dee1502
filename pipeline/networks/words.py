"""Words: what is wrong with a network or recipe of one's own; no artefact's identity covers this module."""

from typing import Any

SIGNATURES = {
    "model": "build(input_shape, num_labels) → keras.Model",
    "recipe": "recipe(total_steps, scale) → optimizer, or a pipeline.networks.recipes.Recipe",
}
NEITHER = (
    "its outputs are neither logits nor probabilities that add up to 1: its last layer's activation is sigmoid. Make "
    "it softmax, or leave it out"
)


def wrong_shape(expected: tuple[int, int], found: tuple[int, ...]) -> str:
    """Not one figure for each label."""
    images, labels = expected
    return (
        f"for {images} images its outputs should have the shape {expected}, one figure for each of {labels} labels; "
        f"they have {found}"
    )


def call_of_network(images: Any) -> str:
    """What was tried when it raised an error."""
    return f"its network, on {images.dtype} images of the shape {images.shape}, "


def not_saved(error: str) -> str:
    """It cannot be used where its own code is not."""
    return (
        f"its network cannot be saved and loaded: {error}. Classes and functions of your own need "
        "@keras.saving.register_keras_serializable(), and no Lambda"
    )


def kind_of(found: Any) -> str:
    """What something is instead."""
    return "None" if found is None else f"an object of the class {type(found).__name__}"


def raised_at(text: str, file: str, line: int) -> str:
    """An error with its place in the user's code."""
    return f"{text} ({file}, line {line})"
