"""Networks: what is trained, one file each, and how (… → stream → **training** → …).

    build.py          a network, or a recipe, by its name in the settings
    baseline_cnn.py   the tutorials' network
    small_convnet.py  for photographs of 96 to 192 pixels a side
    mnist_dense.py mnist_cnn.py fashion_cnn.py flowers_convnet.py   others of the tutorials, as published
    recipes.py        optimizer, schedule and loss by name
    own.py            functions of the user's own instead of these, and what is wrong with them
    outputs.py        logits and probabilities
    words.py          what is wrong with them, in sentences
    weights.py        its variables by name

Every network of ours takes uint8 images and rescales them in its first layer, so that a saved model takes the pixels
that lie in the records, and ends in float32 whatever precision it computes in: in probabilities, or in logits where
it was published so. One of the user's own takes the same and gives either.
"""

from pipeline.networks.build import NETWORKS, build_model, build_network, find_recipe, kind_of_outputs
from pipeline.networks.outputs import LOGITS, PROBABILITIES, as_probabilities, trained_by_logits
from pipeline.networks.own import is_own, load_function, untrained_copy
from pipeline.networks.recipes import RECIPES, make_loss, make_optimizer
from pipeline.networks.weights import named_layers, named_variables

__all__ = [
    "LOGITS",
    "NETWORKS",
    "PROBABILITIES",
    "RECIPES",
    "as_probabilities",
    "build_model",
    "build_network",
    "find_recipe",
    "is_own",
    "kind_of_outputs",
    "load_function",
    "make_loss",
    "make_optimizer",
    "named_layers",
    "named_variables",
    "trained_by_logits",
    "untrained_copy",
]
