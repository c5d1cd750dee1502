"""Networks: what is trained, one file each, and how (… → stream → **training** → …).

    build.py            a network, or a recipe, by its name in the settings
    baseline_cnn.py     the tutorials' network
    compact_convnet.py  for images of 28 to 32 pixels a side
    small_convnet.py    for photographs of 96 to 192 pixels a side
    mnist_dense.py mnist_cnn.py fashion_cnn.py flowers_convnet.py   others of the tutorials, as published
    airbench_convnet.py in few epochs, for images of 28 pixels a side and more; whitening.py: its first layer
    char_lstm.py        for text, each next character
    text.py             such networks, and the same for one token at a time
    recipes.py          optimizer, schedule and loss by name; muon.py, groups.py: their optimizer, their rates
    quick.py            what a CPU computes sooner: convolution.py, pooling.py, normalisation.py, activation.py
    own.py              functions of the user's own instead of these, and what is wrong with them
    adapted.py          what a network takes from the data before it is trained
    outputs.py          logits and probabilities
    words.py            what is wrong with them, in sentences
    weights.py          its variables by name

Every network of ours takes what lies in the records, uint8 images, which it rescales in its first layer, or uint8
tokens, and ends in float32 probabilities or logits whatever precision it computes in. One of the user's own does too.
"""

from pipeline.networks.adapted import ADAPTED_EXAMPLES, adapted_by
from pipeline.networks.build import (
    NETWORKS,
    adapt_model,
    build_model,
    build_network,
    find_recipe,
    kind_of_outputs,
    takes_from_data,
)
from pipeline.networks.outputs import LOGITS, PROBABILITIES, as_probabilities, trained_by_logits
from pipeline.networks.own import is_own, load_function, untrained_copy
from pipeline.networks.recipes import RECIPES, make_loss, make_optimizer
from pipeline.networks.text import TEXT_NETWORKS
from pipeline.networks.weights import named_layers, named_variables

__all__ = [
    "ADAPTED_EXAMPLES",
    "LOGITS",
    "NETWORKS",
    "PROBABILITIES",
    "RECIPES",
    "TEXT_NETWORKS",
    "adapt_model",
    "adapted_by",
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
    "takes_from_data",
    "trained_by_logits",
    "untrained_copy",
]
