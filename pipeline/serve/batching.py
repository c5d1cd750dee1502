"""Joins the examples of waiting requests to batches."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

#: Greatest number of examples that the model computes at once. A larger request becomes several batches.
MAX_BATCH = 32
# Time for other requests to join the first one. While a batch is computed, requests wait anyway.
_WAIT_SECONDS = 0.002


class Batches:
    """Computes batches in one thread. ``observe`` gets the size of each."""

    def __init__(self, outputs: Callable[[np.ndarray], np.ndarray], observe: Callable[[int], object]) -> None:
        self._outputs, self._observe = outputs, observe
        self._waiting: deque[tuple[np.ndarray, asyncio.Future]] = deque()
        self._arrived, self._thread = asyncio.Event(), ThreadPoolExecutor(1, "model")

    async def outputs(self, inputs: np.ndarray) -> np.ndarray:
        """Return the outputs (batch, …) of inputs (batch, …) as soon as their batches are computed."""
        futures = []
        for start in range(0, len(inputs), MAX_BATCH):
            futures.append(asyncio.get_running_loop().create_future())
            self._waiting.append((inputs[start : start + MAX_BATCH], futures[-1]))
        self._arrived.set()
        return np.concatenate(await asyncio.gather(*futures))

    async def run(self) -> None:
        """Compute what waits until canceled."""
        while True:
            await self._arrived.wait()
            await asyncio.sleep(_WAIT_SECONDS)
            batch, size = [], 0
            while self._waiting and size + len(self._waiting[0][0]) <= MAX_BATCH:
                inputs, future = self._waiting.popleft()
                # A request may have reached its time limit.
                if not future.done():
                    batch.append((inputs, future))
                    size += len(inputs)
            if not self._waiting:
                self._arrived.clear()
            if batch:
                await self._compute(batch, size)

    async def _compute(self, batch: list[tuple[np.ndarray, asyncio.Future]], size: int) -> None:
        self._observe(size)
        joined = np.concatenate([inputs for inputs, _ in batch])
        try:
            outputs = await asyncio.get_running_loop().run_in_executor(self._thread, self._outputs, joined)
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        ends = np.cumsum([len(inputs) for inputs, _ in batch])
        for (_, future), part in zip(batch, np.split(outputs, ends[:-1]), strict=True):
            if not future.done():
                future.set_result(part)
