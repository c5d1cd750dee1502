"""Staleness in words: what differs between the identity an artefact was made from and the one asked for now.

Beside the data's way; a leaf that knows plain dictionaries only (see fingerprint.py for what is in them). What they
hold may come from the data, as a text's vocabulary does: it is shown, never obeyed by a terminal.
"""

from collections.abc import Iterator, Mapping

_ABSENT = "–"
_LONGEST = 60


def differences(made_from: Mapping, asked_for: Mapping) -> list[str]:
    """One phrase for each difference between two identities, settings first.

    Settings and packages are given with both values, code by module and function, what lies upstream by its path:
    ``"epochs: 5 → 1"``, ``"pipeline.networks.baseline_cnn changed"``, ``"keras 3.15.1 → 3.16.0"``.
    """
    parts = {
        part: list(_changes(made_from.get(part, {}), asked_for.get(part, {})))
        for part in ("settings", "upstream", "code", "packages")
    }
    phrases = [
        *(f"{path}: {_show(old)} → {_show(new)}" for path, old, new in parts["settings"]),
        *(f"upstream {path}: {_show(old)} → {_show(new)}" for path, old, new in parts["upstream"]),
        *(f"{path.removesuffix('.<module>')} {_how(old, new)}" for path, old, new in parts["code"]),
        *(f"{path} {_show(old)} → {_show(new)}" for path, old, new in parts["packages"]),
    ]
    return [printable(phrase) for phrase in phrases]


def printable(text: str) -> str:
    """The text on one line: control characters, marks of direction and what is no UTF-8 as Python escapes them."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def _changes(old: object, new: object, path: str = "") -> Iterator[tuple[str, object, object]]:
    """(dotted path, old value, new value) of every leaf that differs; a missing one is None."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        if old != new:
            yield path, old, new
        return
    for name in sorted(old.keys() | new.keys()):
        yield from _changes(old.get(name), new.get(name), f"{path}.{name}" if path else name)


def _how(old: object, new: object) -> str:
    return "is new" if old is None else "is gone" if new is None else "changed"


def _show(value: object) -> str:
    if isinstance(value, Mapping):
        return "there"
    if isinstance(value, list):
        value = ", ".join(map(_show, value))
    text = _ABSENT if value is None else printable(str(value))
    # A fingerprint is told by its beginning, as in the folders' names.
    if len(text) == 64 and set(text) <= set("0123456789abcdef"):
        return text[:12]
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
