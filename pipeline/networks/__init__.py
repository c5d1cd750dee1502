"""Networks: what is trained, one file each, and how (… → stream → **training** → …).

    build.py          a network by its name in the settings
    baseline_cnn.py   the tutorials' network
    small_convnet.py  for photographs of 96 to 192 pixels a side
    recipes.py        optimizer, schedule and loss by name

Every network takes uint8 images and rescales them in its first layer, so that a saved model takes the pixels that lie
in the records, and ends in float32 probabilities whatever precision it computes in.
"""

from pipeline.networks.build import NETWORKS, build_model, build_network
from pipeline.networks.recipes import RECIPES, find_recipe, make_loss, make_optimizer

__all__ = ["NETWORKS", "RECIPES", "build_model", "build_network", "find_recipe", "make_loss", "make_optimizer"]
