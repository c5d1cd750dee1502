"""Weights: a network's variables by name, as the runs' weight files have them (… → training → run).

dense/kernel               a layer's own
backbone/conv_1/kernel     of a layer, or a model, inside a layer
"""

from collections.abc import Iterator

import keras


def named_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """Layer and variable name → variable; the names are the same in a model that was saved and loaded."""
    found: dict[str, keras.Variable] = {}
    for layer_name, layer in named_layers(model):
        for variable in layer.weights:
            # In a layer made of layers several have one name, and the path from it on tells them apart.
            below = f"/{variable.path}".partition(f"/{layer.name}/")[2] or variable.name
            name, number = f"{layer_name}/{below}", 2
            while name in found:
                name, number = f"{layer_name}/{below}_{number}", number + 1
            found[name] = variable
    # What a model that is a class of its own holds beside its layers.
    known = {id(variable) for variable in found.values()}
    return found | {variable.path: variable for variable in model.weights if id(variable) not in known}


def named_layers(model: keras.Model) -> Iterator[tuple[str, keras.Layer]]:
    """Name and layer, those of a model inside the model after its name and a slash instead of that model."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from ((f"{layer.name}/{name}", inner) for name, inner in named_layers(layer))
        else:
            yield layer.name, layer
