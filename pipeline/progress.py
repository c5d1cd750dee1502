"""Progress reports of a stage to registered listeners."""

from collections.abc import Callable

#: Function of a description, the number of finished units, the total and the name of a unit.
Listener = Callable[[str, int, int, str], None]

_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """Register a listener. It is called in the thread that reports."""
    _listeners.append(listener)


def duration(seconds: float) -> str:
    """An estimated duration for people."""
    return f"{max(1, round(seconds)):.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def report(description: str, done: int, total: int, unit: str = "examples") -> None:
    """Report ``done`` of ``total`` units. Callers that count in larger steps may exceed the total."""
    for listener in _listeners:
        listener(description, min(done, total), total, unit)
