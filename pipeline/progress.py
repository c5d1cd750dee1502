"""Progress: how far a stage is, told to whoever listens; beside the data's way, and silent where nobody does."""

import contextlib
from collections.abc import Callable, Iterator

#: (what is being done, how much of it is done, how much there is, of what: images, characters, …)
Listener = Callable[[str, int, int, str], None]

_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """Tell ``listener`` from now on; it is called from the thread that works, and should be quick."""
    _listeners.append(listener)


@contextlib.contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Tell ``listener`` as well while the block runs."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell(what: str, done: int, total: int, unit: str = "examples") -> None:
    """Say that ``done`` of ``total`` are done; what is done whole is over.

    Who counts by executions of several steps counts past the end: no listener hears of more than there is.
    """
    done = min(done, total)
    for listener in _listeners:
        listener(what, done, total, unit)
