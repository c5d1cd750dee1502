"""Progress: how far a stage is, told to whoever listens; beside the data's way, and silent where nobody does."""

from collections.abc import Callable

#: (what is being done, images done, images in all)
Listener = Callable[[str, int, int], None]

_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """Tell ``listener`` from now on; it is called from the thread that works, and should be quick."""
    _listeners.append(listener)


def is_heard() -> bool:
    """Whether anyone listens: where not, nothing need be counted."""
    return bool(_listeners)


def tell(what: str, done: int, total: int) -> None:
    """Say that ``done`` of ``total`` images are done; what is done whole is over."""
    for listener in _listeners:
        listener(what, done, total)
