"""PyTorch: DataLoader over tensors in memory, and the baseline CNN in eager mode, float32 or bfloat16 by autocast.

As its documentation recommends on a CPU: channels-last memory format, persistent workers, set_to_none.
"""

import itertools
import time
from collections.abc import Iterator
from functools import cache

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def loader_rate(images: str, labels: str, batch_size: int, workers: int) -> float:
    """Images per second of a whole pass, after a first one."""
    loader = _loader(images, labels, batch_size, workers)
    started = time.perf_counter()
    seen = sum(len(batch_labels) for _, batch_labels in loader)
    return seen / (time.perf_counter() - started)


def training_rate(images: str, labels: str, precision: str, batch_size: int, steps: int) -> float:
    """Images per second of ``steps`` optimizer updates, the batches ready made."""
    model, optimizer, loss = _training(precision)
    batches = _batches(images, labels, batch_size)
    started = time.perf_counter()
    for pixels, expected in itertools.islice(batches, steps):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
            inputs = (pixels.permute(0, 3, 1, 2).float() / 255).contiguous(memory_format=torch.channels_last)
            output = loss(model(inputs), expected)
        output.backward()
        optimizer.step()
    return steps * batch_size / (time.perf_counter() - started)


def baseline_cnn() -> nn.Module:
    """The network of models.py, layer by layer."""

    def block(before: int, after: int) -> list[nn.Module]:
        return [nn.Conv2d(before, after, 2, padding="same"), nn.ReLU(), nn.MaxPool2d(2)]

    return nn.Sequential(
        *block(3, 32),
        *block(32, 64),
        *block(64, 128),
        nn.Dropout(0.3),
        nn.Flatten(),
        nn.Linear(4 * 4 * 128, 100),
        nn.ReLU(),
        nn.Dropout(0.4),
        nn.Linear(100, 10),
    )


@cache
def _data(images: str, labels: str) -> TensorDataset:
    return TensorDataset(torch.from_numpy(np.load(images)), torch.from_numpy(np.load(labels)).long())


@cache
def _loader(images: str, labels: str, batch_size: int, workers: int) -> DataLoader:
    loader = DataLoader(
        _data(images, labels), batch_size, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    for _ in loader:
        pass
    return loader


@cache
def _batches(images: str, labels: str, batch_size: int) -> Iterator[list[torch.Tensor]]:
    # Made beforehand: what is compared is the training, to which a loader would only add.
    ready = list(itertools.islice(DataLoader(_data(images, labels), batch_size, shuffle=True), 50))
    return itertools.cycle(ready)


@cache
def _training(precision: str) -> tuple[nn.Module, torch.optim.Optimizer, nn.Module]:
    torch.manual_seed(0)
    model = baseline_cnn().to(memory_format=torch.channels_last).train()
    return model, torch.optim.RMSprop(model.parameters(), lr=1e-3), nn.CrossEntropyLoss()
