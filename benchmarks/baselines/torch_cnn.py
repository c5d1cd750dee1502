"""PyTorch: DataLoader over tensors in memory, and training of two networks, eager or compiled, float32 or bfloat16.

As its documentation recommends on a CPU: channels-last memory format, persistent workers, set_to_none.
"""

import itertools
import time
from collections.abc import Callable, Iterator
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


def training_rate(
    images: str, labels: str, *, network: str, precision: str, is_compiled: bool, batch_size: int, steps: int
) -> float:
    """Images per second of ``steps`` optimizer updates on prepared batches. The first call compiles."""
    optimizer, loss = _training(network, precision, is_compiled)
    batches = _batches(images, labels, batch_size, steps)
    started = time.perf_counter()
    for pixels, expected in batches:
        optimizer.zero_grad(set_to_none=True)
        loss(pixels, expected).backward()
        optimizer.step()
    return steps * batch_size / (time.perf_counter() - started)


def baseline_cnn() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Build the network of the tutorials with their optimizer."""

    def block(before: int, after: int) -> list[nn.Module]:
        return [nn.Conv2d(before, after, 2, padding="same"), nn.ReLU(), nn.MaxPool2d(2)]

    hidden = [nn.Dropout(0.3), nn.Flatten(), nn.Linear(4 * 4 * 128, 100), nn.ReLU(), nn.Dropout(0.4)]
    model = nn.Sequential(*block(3, 32), *block(32, 64), *block(64, 128), *hidden, nn.Linear(100, 10))
    return model, torch.optim.RMSprop(model.parameters(), lr=1e-3)


def airbench_convnet_small() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Build the network of airbench94 at half its widths, with SGD, which computes less than Muon."""

    def block(before: int, after: int) -> list[nn.Module]:
        normalized = [nn.BatchNorm2d(after, momentum=0.4), nn.ReLU()]
        first = [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.MaxPool2d(2), *normalized]
        return [
            *first,
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after, momentum=0.4),
            nn.ReLU(),
        ]

    whiten = nn.Conv2d(3, 24, 2).requires_grad_(False)
    blocks = [*block(24, 32), *block(32, 128), *block(128, 128)]
    model = nn.Sequential(whiten, nn.ReLU(), *blocks, nn.MaxPool2d(3), nn.Flatten(), nn.Linear(128, 10, bias=False))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return model, torch.optim.SGD(trained, lr=0.1, momentum=0.85, nesterov=True)


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


def _batches(images: str, labels: str, batch_size: int, steps: int) -> Iterator[list[torch.Tensor]]:
    return itertools.islice(itertools.cycle(_prepared(images, labels, batch_size)), steps)


@cache
def _prepared(images: str, labels: str, batch_size: int) -> list[list[torch.Tensor]]:
    # Only the training is compared, to which a loader would add time.
    return list(itertools.islice(DataLoader(_data(images, labels), batch_size, shuffle=True), 8))


@cache
def _training(network: str, precision: str, is_compiled: bool) -> tuple[torch.optim.Optimizer, Callable]:
    torch.manual_seed(0)
    model, optimizer = {"baseline_cnn": baseline_cnn, "airbench_convnet_small": airbench_convnet_small}[network]()
    model = model.to(memory_format=torch.channels_last).train()
    crossentropy = nn.CrossEntropyLoss()

    def loss(pixels: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
            inputs = (pixels.permute(0, 3, 1, 2).float() / 255).contiguous(memory_format=torch.channels_last)
            return crossentropy(model(inputs), expected)

    return optimizer, torch.compile(loss) if is_compiled else loss
