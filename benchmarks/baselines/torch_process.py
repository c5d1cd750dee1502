"""PyTorch in a process of its own: it forks its loader's workers, which must not inherit TensorFlow's threads."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

WORKERS = (0, 1, 2, 4)


class TorchProcess:
    """Context manager; each method runs there and gives images per second."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, folder: Path) -> None:
        self._files = [str(folder / f"torch-{name}.npy") for name in ("images", "labels")]
        for file, array in zip(self._files, (images, labels), strict=True):
            np.save(file, array)
        self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))

    def __enter__(self) -> "TorchProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def loader_rate(self, batch_size: int, workers: int) -> float:
        """One pass of the DataLoader, after its first."""
        return self._pool.submit(_loader_rate, *self._files, batch_size, workers).result()

    def best_number_of_workers(self, batch_size: int) -> int:
        """The fastest of WORKERS, each measured once after a first pass."""
        return max(WORKERS, key=lambda workers: self.loader_rate(batch_size, workers))

    def training_rate(self, **arguments: object) -> float:
        """One call of ``torch_cnn.training_rate``. The first call compiles and warms up."""
        return self._pool.submit(_training_rate, *self._files, **arguments).result()


def _loader_rate(images: str, labels: str, batch_size: int, workers: int) -> float:
    from benchmarks.baselines import torch_cnn

    return torch_cnn.loader_rate(images, labels, batch_size, workers)


def _training_rate(images: str, labels: str, **arguments: object) -> float:
    from benchmarks.baselines import torch_cnn

    return torch_cnn.training_rate(images, labels, **arguments)
