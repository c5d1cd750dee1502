"""Reads the tensors of a PyTorch file without PyTorch and without running code of the file.

The format is that of ``torch.save`` before version 1.6: five pickles, then the storages.
"""

import io
import math
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_MAGIC = 0x1950A86A20F9469CFC6C
# Names that a file may use. A tensor becomes its storage, offset, shape and strides, and a storage its type in NumPy.
_ALLOWED = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): lambda *arguments: arguments[:4],
    ("torch", "FloatStorage"): "<f4",
    ("torch", "LongStorage"): "<i8",
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"the name {module}.{name} is not allowed")
        return _ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> tuple[str, str]:
        _, dtype, key, *_ = pid
        return key, dtype


def read_pytorch_weights(file: Path) -> dict[str, np.ndarray]:
    """Read the tensors of a state dictionary by name, float32 or int64.

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
