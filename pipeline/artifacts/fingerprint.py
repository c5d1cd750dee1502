"""Identities of artifacts, their hashes (fingerprints), and the differences between two identities.

An identity contains the settings, the inputs from upstream stages, the code and the versions of libraries. Code is
hashed as syntax, per function (code_digest.py). Modules are read as text and never imported.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pipeline.artifacts.modules import read_module
from pipeline.optional_packages import installed_version

# Part of every identity. Raise it if a release rebuilds all artifacts anyway.
IDENTITY_SCHEMA = 2

# Packages and modules that cannot change a byte of an artifact. They check, name and move artifacts, apply a trained
# model, or print messages.
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

# Phrase for a difference in each section of an identity.
_PHRASES = {
    "settings": "{path}: {old} → {new}",
    "upstream": "input {path}: {old} → {new}",
    "code": "{path} {how}",
    "packages": "{path} {old} → {new}",
}
_ADDED_INPUT, _REQUESTED_RUNS = "input {path} {how}", "requested runs: {old} → {new}"
# The text for an absent value, and the maximum number of characters of a value.
_ABSENT, _LONGEST = "–", 60

# Distributions of the same library. The installed one counts.
_ALTERNATIVES = {"tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "tf-nightly")}


def fingerprint(identity: Mapping[str, object]) -> str:
    """SHA-256 of an identity as 64 hex digits. The order of keys does not matter.

    Raises:
        TypeError, ValueError: a value is not plain JSON data.
    """
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def package_versions(names: Iterable[str]) -> dict[str, str]:
    """Installed version of each distribution, or "absent". Nothing is imported."""
    alternatives = {name: map(installed_version, _ALTERNATIVES.get(name, (name,))) for name in names}
    return {name: next(filter(None, versions), "absent") for name, versions in alternatives.items()}


def code_digests(entry: str, user_modules: Sequence[str] = ()) -> dict[str, dict[str, str]]:
    """Digests of the code of ``entry`` and of every module of ``pipeline`` that it imports, directly or indirectly.

    ``user_modules`` count too, with their imports of ``pipeline`` and of local modules (modules.py).

    Returns:
        Module → top-level definition → digest. ``"<module>"`` is the digest of all other statements of a module.
    """
    digests: dict[str, dict[str, str]] = {}
    packages = frozenset(module.partition(".")[0] for module in user_modules)
    pending, visited = [entry, *user_modules], set()
    while pending:
        if (module := pending.pop()) in visited:
            continue
        visited.add(module)
        if not f"{module}.".startswith(_NOT_COVERED) and (content := read_module(module, packages)):
            digests[module], imports = content
            pending.extend(imports)
    return digests


def differences(old_identity: Mapping, new_identity: Mapping) -> list[str]:
    """Describe each difference between two identities in a phrase, settings first.

    Phrases look like ``"epochs: 5 → 1"``, ``"pipeline.models.baseline_cnn changed"`` or ``"keras 3.15.1 → 3.16.0"``. If
    the identity schemas differ, only the settings are compared.
    """
    schema, expected = old_identity.get("schema", 1), new_identity.get("schema", 1)
    sections, phrases = list(_PHRASES), []
    if schema != expected:
        version = "a later" if isinstance(schema, int) and schema > expected else "an earlier"
        sections, phrases = ["settings"], [f"built by {version} version of TensorCraft"]
    for section in sections:
        for path, old, new in _changes(old_identity.get(section, {}), new_identity.get(section, {})):
            how = "added" if old is None else "removed" if new is None else "changed"
            values = {"path": path.removesuffix(".<module>"), "old": _show(old), "new": _show(new), "how": how}
            phrase = _PHRASES[section]
            if section == "upstream":
                phrase = _REQUESTED_RUNS if path == "current" else phrase if how == "changed" else _ADDED_INPUT
            phrases.append(phrase.format(**values))
    return [printable(phrase) for phrase in phrases]


def printable(text: str) -> str:
    """Escape control characters, direction marks and invalid UTF-8, so that the text fits on one line."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def _changes(old: object, new: object, path: str = "") -> Iterator[tuple[str, object, object]]:
    """Yield (dotted path, old value, new value) of every leaf that differs. A missing leaf is None."""
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
