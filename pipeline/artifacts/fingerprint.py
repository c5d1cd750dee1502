"""Identities of artifacts, their hashes (fingerprints), and the differences between two identities.

An identity contains the settings, the inputs from upstream stages, the code and the versions of libraries. Code is
hashed as syntax, per function (code_digest.py). Modules are read as text and never imported.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pipeline.artifacts.code_digest import read_module
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
    "pipeline.shards.shared.",
    "pipeline.shards.workers.",
    "pipeline.training.launch.",
    "pipeline.training.heartbeat.",
)

_VALUES, _CHANGE = "{name}: {old} → {new}", "{name} {how}"
# Phrase for a difference in each section of an identity.
_PHRASES = {"settings": _VALUES, "upstream": _VALUES, "code": _CHANGE, "packages": "{name} {old} → {new}"}
# Name of an input for people, with its key in a group.
_INPUTS = {
    "current": "the requested runs",
    "determinism": "determinism check {}",
    "digest": "the data",
    "exports": "export {}",
    "features": "feature {}",
    "label_names": "labels",
    "name": "dataset",
    "num_examples": "{} examples",
    "published": "published results {}",
    "searches": "search {}",
    "records": "the records",
    "run": "the run",
    "runs": "run {}",
    "skipped": "skipped files ({})",
    "weights": "the weights",
}
# The maximum number of characters of a value.
_LONGEST = 60

# Distributions of the same library. The installed one counts.
_ALTERNATIVES = {"tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "tf-nightly")}


def fingerprint(identity: Mapping[str, object]) -> str:
    """SHA-256 of an identity, which is plain JSON data, as 64 hex digits. The order of keys does not matter."""
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def package_versions(names: Iterable[str]) -> dict[str, str]:
    """Installed version of each distribution, or "absent". Nothing is imported."""
    alternatives = {name: map(installed_version, _ALTERNATIVES.get(name, (name,))) for name in names}
    return {name: next(filter(None, versions), "absent") for name, versions in alternatives.items()}


def code_digests(entry: str, user_modules: Sequence[str] = ()) -> dict[str, dict[str, str]]:
    """Digests of the code of ``entry`` and of every module of ``pipeline`` that it imports, directly or indirectly.

    ``user_modules`` count too, with their imports of ``pipeline`` and of local modules (code_digest.py). Returns module
    → top-level definition → digest. ``"<module>"`` is the digest of all other statements of a module.
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

    Phrases look like ``"epochs: 5 → 1"``, ``"the records changed"``, ``"pipeline.models.baseline_cnn changed"`` or
    ``"keras 3.15.1 → 3.16.0"``, without digests. If the identity schemas differ, only the settings are compared.
    """
    schema, expected = old_identity.get("schema", 1), new_identity.get("schema", 1)
    sections, phrases = list(_PHRASES), []
    if schema != expected:
        version = "a later" if isinstance(schema, int) and schema > expected else "an earlier"
        sections, phrases = ["settings"], [f"built by {version} version of TensorCraft"]
    # A setting may be a tuple, which is a list in the manifest.
    present = {**new_identity, "settings": json.loads(json.dumps(new_identity.get("settings", {})))}
    for section in sections:
        for path, old, new in _changes(old_identity.get(section, {}), present.get(section, {})):
            how = "added" if old is None else "removed" if new is None else "changed"
            name = _input_name(*path) if section == "upstream" else ".".join(path).removesuffix(".<module>")
            phrase = _PHRASES[section] if _is_readable(old) and _is_readable(new) else _CHANGE
            phrases.append(phrase.format(name=name, old=_show(old), new=_show(new), how=how))
    return [printable(phrase) for phrase in phrases]


def printable(text: str) -> str:
    """Escape control characters, direction marks and invalid UTF-8, so that the text fits on one line."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def _changes(old: object, new: object, *path: str) -> Iterator[tuple[tuple[str, ...], object, object]]:
    """Yield (path of one or two names, old value, new value) of every difference. A missing value is None."""
    if len(path) == 2 or not isinstance(old, Mapping) or not isinstance(new, Mapping):
        if old != new:
            yield path, old, new
        return
    for name in sorted(old.keys() | new.keys()):
        yield from _changes(old.get(name), new.get(name), *path, name)


def _input_name(group: str = "inputs", key: str = "") -> str:
    return _INPUTS.get(group, group.replace("_", " ")).format(key).rstrip()


def _is_readable(value: object) -> bool:
    """Whether people can compare two such values. They cannot compare digests."""
    if isinstance(value, list):
        return all(map(_is_readable, value))
    return not isinstance(value, Mapping) and not re.fullmatch("[0-9a-f]{64}", str(value))


def _show(value: object) -> str:
    if isinstance(value, list):
        value = ", ".join(map(_show, value))
    # A negative number stands for the value of the training recipe.
    text = "none" if value in (None, "") else "recipe" if value == -1.0 else printable(str(value))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
