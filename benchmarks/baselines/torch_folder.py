"""A folder of photographs as PyTorch's tutorials read it: torchvision's ImageFolder, its transforms, the DataLoader.

pytorch.org/tutorials/beginner/transfer_learning_tutorial. In a process of its own, as torch_process.py is.
"""

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

WORKERS = 2


class TorchFolder:
    """Context manager."""

    def __init__(self, folder: Path, size: int, batch_size: int) -> None:
        self._asked = (str(folder), size, batch_size)
        self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))

    def __enter__(self) -> "TorchFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def rate(self) -> float:
        """Images per second of one pass: middle squares of ``size`` pixels, uint8, batched."""
        return self._pool.submit(_rate, *self._asked).result()


def _rate(folder: str, size: int, batch_size: int) -> float:
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    steps = v2.Compose([v2.PILToTensor(), v2.Resize(size), v2.CenterCrop(size)])
    loader = DataLoader(ImageFolder(folder, steps), batch_size=batch_size, shuffle=True, num_workers=WORKERS)
    started, images = time.perf_counter(), 0
    for batch, _ in loader:
        images += len(batch)
    return images / (time.perf_counter() - started)
