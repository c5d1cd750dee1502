"""Files of PyTorch are read without PyTorch, and none of them runs code."""

import os
import pickle
import struct
import sys
import types
from collections import OrderedDict

import numpy as np
import pytest

from pipeline.models.efficientnet_lite import read_pytorch_weights

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001


class Storage:
    def __init__(self, key, values):
        self.key, self.values = key, values


class Tensor:
    def __init__(self, *arguments):
        self.arguments = arguments

    def __reduce__(self):
        return sys.modules["torch._utils"]._rebuild_tensor_v2, (*self.arguments, False, OrderedDict())


class Pickler(pickle.Pickler):
    def persistent_id(self, thing):
        if isinstance(thing, Storage):
            kind = {"f": "FloatStorage", "i": "LongStorage"}[thing.values.dtype.kind]
            return "storage", getattr(sys.modules["torch"], kind), thing.key, "cpu", len(thing.values), None
        return None


@pytest.fixture
def torch(monkeypatch):
    """The names of PyTorch that its files contain."""
    modules = {"torch": ("FloatStorage", "LongStorage"), "torch._utils": ("_rebuild_tensor_v2",)}
    for name, attributes in modules.items():
        module = types.ModuleType(name)
        for attribute in attributes:
            setattr(module, attribute, type(attribute, (), {"__module__": name}))
        monkeypatch.setitem(sys.modules, name, module)


def write(path, tensors, *storages, magic=MAGIC):
    with path.open("wb") as file:
        for content in (magic, PROTOCOL, {"little_endian": True}, tensors, [storage.key for storage in storages]):
            Pickler(file, protocol=2).dump(content)
        for storage in storages:
            file.write(struct.pack("<q", len(storage.values)) + storage.values.tobytes())
    return path


def test_tensors_are_read_with_their_offsets_and_strides(torch, tmp_path):
    floats, integers = Storage("7", np.arange(12, dtype="<f4")), Storage("8", np.arange(3, dtype="<i8"))
    tensors = OrderedDict(
        plain=Tensor(floats, 0, (3, 4), (4, 1)),
        turned=Tensor(floats, 4, (4, 2), (1, 4)),
        number=Tensor(integers, 2, (), ()),
    )
    read = read_pytorch_weights(write(tmp_path / "a.pth", tensors, floats, integers))
    np.testing.assert_array_equal(read["plain"], floats.values.reshape(3, 4))
    np.testing.assert_array_equal(read["turned"], floats.values[4:].reshape(2, 4).T)
    assert (read["number"].dtype, read["number"]) == (np.int64, 2)


class Malicious:
    def __reduce__(self):
        return os.system, ("touch was_run",)


def test_a_file_that_would_run_code_is_refused(torch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pickle.UnpicklingError, match=r"posix\.system is not allowed"):
        read_pytorch_weights(write(tmp_path / "a.pth", OrderedDict(weight=Malicious())))
    assert not (tmp_path / "was_run").exists()


@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [(1, (3, 4), (4, 1)), (0, (3, 4), (5, 1)), (-1, (2,), (1,)), (0, (2,), (-1,)), (0, (10**9, 10**9), (0, 0))],
)
def test_a_tensor_beyond_its_storage_is_refused(torch, tmp_path, offset, shape, strides):
    floats = Storage("7", np.arange(12, dtype="<f4"))
    file = write(tmp_path / "a.pth", OrderedDict(weight=Tensor(floats, offset, shape, strides)), floats)
    with pytest.raises(ValueError, match=r"buffer|does not fit|negative"):
        read_pytorch_weights(file)


def test_a_shortened_file_and_another_format_are_refused(torch, tmp_path):
    floats = Storage("7", np.arange(12, dtype="<f4"))
    tensors = OrderedDict(weight=Tensor(floats, 0, (12,), (1,)))
    file = write(tmp_path / "a.pth", tensors, floats)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="does not fit 47 bytes"):
        read_pytorch_weights(file)
    with pytest.raises(pickle.UnpicklingError, match=r"before version 1\.6"):
        read_pytorch_weights(write(tmp_path / "b.pth", tensors, floats, magic=1))
