"""Identities of artifacts, their hashes (fingerprints) and the differences between two of them.

An identity is plain data: settings, inputs from upstream stages, code, and versions of libraries. Code is hashed as
syntax, per function (code_digest.py). Modules are read as text and never imported, so that no library is loaded.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pipeline.artifacts.modules import read_module
from pipeline.optional_packages import installed_version

# Part of every identity. Raise it when artifacts of earlier versions must be rebuilt anyway.
IDENTITY_SCHEMA = 2

# Packages and modules that check, name and move artifacts, apply a trained model, or tell people about them. They
# cannot change a byte of an artifact.
_NOT_COVERED = (
    "pipeline.artifacts.",
    "pipeline.settings.",
    "pipeline.errors.",
    "pipeline.optional_packages.",
    "pipeline.predict.",
    "pipeline.progress.",
    "pipeline.remote.",
    "pipeline.runs.validation.",
    "pipeline.shards.engine.",
    "pipeline.shards.heartbeat.",
    "pipeline.shards.shared.",
    "pipeline.training.launch.",
    "pipeline.training.heartbeat.",
)

# Part of an identity → the phrase for a difference in it.
_PHRASES = {
    "settings": "{path}: {old} → {new}",
    "upstream": "input {path}: {old} → {new}",
    "code": "{path} {how}",
    "packages": "{path} {old} → {new}",
}
_ADDED_INPUT, _REQUESTED_RUNS = "input {path} {how}", "requested runs: {old} → {new}"
# In phrases: an absent value, and the most characters of a value.
_ABSENT, _LONGEST = "–", 60

# One library under several names on the package index, the one that is installed counts.
_ALTERNATIVES = {"tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "tf-nightly")}


def fingerprint(identity: Mapping[str, object]) -> str:
    """SHA-256 of an identity as 64 hex digits; independent of the order of keys.

    Raises:
        TypeError, ValueError: a value is not plain JSON data.
    """
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def package_versions(names: Iterable[str]) -> dict[str, str]:
    """Installed version of each distribution, without importing it; "absent" where there is none."""
    alternatives = {name: map(installed_version, _ALTERNATIVES.get(name, (name,))) for name in names}
    return {name: next(filter(None, versions), "absent") for name, versions in alternatives.items()}


def code_digests(entry: str, own: Sequence[str] = ()) -> dict[str, dict[str, str]]:
    """Module → top-level definition → digest, for ``entry`` and every module of ``pipeline`` it reaches.

    Statements outside any function or class are digested together under ``"<module>"``. ``own`` are modules of the
    user, which count with their imports of ``pipeline`` and of local modules (modules.py).
    """
    digests: dict[str, dict[str, str]] = {}
    waiting, seen, packages = [entry, *own], set(), frozenset(module.partition(".")[0] for module in own)
    while waiting:
        if (module := waiting.pop()) in seen:
            continue
        seen.add(module)
        if not f"{module}.".startswith(_NOT_COVERED) and (content := read_module(module, packages)):
            digests[module], imports = content
            waiting.extend(imports)
    return digests


def differences(made_from: Mapping, asked_for: Mapping) -> list[str]:
    """One phrase for each difference between two identities, settings first.

    Examples: ``"epochs: 5 → 1"``, ``"pipeline.models.baseline_cnn changed"``, ``"keras 3.15.1 → 3.16.0"``. Only the
    settings of another identity schema are compared.
    """
    schema, expected = made_from.get("schema", 1), asked_for.get("schema", 1)
    parts, phrases = list(_PHRASES), []
    if schema != expected:
        version = "a later" if isinstance(schema, int) and schema > expected else "an earlier"
        parts, phrases = ["settings"], [f"built by {version} version of TensorCraft"]
    for part in parts:
        for path, old, new in _changes(made_from.get(part, {}), asked_for.get(part, {})):
            how = "added" if old is None else "removed" if new is None else "changed"
            values = {"path": path.removesuffix(".<module>"), "old": _show(old), "new": _show(new), "how": how}
            phrase = _PHRASES[part]
            if part == "upstream":
                phrase = _REQUESTED_RUNS if path == "current" else phrase if how == "changed" else _ADDED_INPUT
            phrases.append(phrase.format(**values))
    return [printable(phrase) for phrase in phrases]


def printable(text: str) -> str:
    """The text on one line: control characters, marks of direction and invalid UTF-8 as Python escapes them."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def _changes(old: object, new: object, path: str = "") -> Iterator[tuple[str, object, object]]:
    """(dotted path, old value, new value) of every leaf that differs; a missing one is None."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        if old != new:
            yield path, old, new
        return
    for name in sorted(old.keys() | new.keys()):
        yield from _changes(old.get(name), new.get(name), f"{path}.{name}" if path else name)


def _show(value: object) -> str:
    if isinstance(value, list):
        value = ", ".join(map(_show, value))
    text = _ABSENT if value is None else printable(str(value))
    # A fingerprint is shown by its beginning, as in the names of folders.
    if len(text) == 64 and set(text) <= set("0123456789abcdef"):
        return text[:12]
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
