"""Progress of a stage, for whoever listens."""

from collections.abc import Callable

#: (what is being done, how much of it is done, how much there is, of what: images, characters, …)
Listener = Callable[[str, int, int, str], None]

_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """Call ``listener`` from now on, in the thread that works."""
    _listeners.append(listener)


def tell(what: str, done: int, total: int, unit: str = "examples") -> None:
    """Report that ``done`` of ``total`` are done, at most ``total``. A caller may count executions of several steps."""
    for listener in _listeners:
        listener(what, min(done, total), total, unit)
