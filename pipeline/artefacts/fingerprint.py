"""Fingerprints: what an artefact was made from, as one hash.

An *identity* is a plain dictionary of four parts: the stage's settings, what it reads from upstream, the code that
computes it and the versions of the libraries that shape its bytes. It is stored whole in the artefact's manifest, so
that two identities can be compared part by part; its hash, the fingerprint, names the artefact.

Code is hashed as syntax, per function, in every module of ``pipeline`` the stage's entry module reaches by imports:
comments, docstrings, formatting, messages and modification times do not change a fingerprint (``syntax.py`` says
exactly what counts), nor does a module called ``words``. Modules are read as text and never imported, so that asking
"is it stale?" does not cost an import of TensorFlow.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from pipeline.artefacts.modules import Import, read_module_text
from pipeline.artefacts.own_code import read_own_module

# They check, name and publish artefacts but cannot change a byte of what a stage computes.
BOOKKEEPING = frozenset(
    f"pipeline.{name}"
    for name in (
        "artefacts",
        "artefacts.exchange",
        "artefacts.fingerprint",
        "artefacts.manifest",
        "artefacts.modules",
        "artefacts.own_code",
        "artefacts.space",
        "artefacts.staleness",
        "artefacts.verified",
        "artefacts.syntax",
        "errors",
        "installed",
        "progress",
        "redaction",
        "remote",
        "remote.artefacts",
        "remote.objects",
        "runs.untrusted",
        "shards.engine",
        "shards.presence",
        "shards.shared",
        "shards.worker_logs",
    )
)
# Settings are part of an identity themselves.
_SETTINGS = "pipeline.config"
# What a stage says in sentences lies in modules of this name, apart from what shapes bytes.
_SPEAKING = "words"

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
    return {name: _installed_version(name) for name in names}


def code_digests(entry: str, own: Sequence[str] = ()) -> dict[str, dict[str, str]]:
    """Module → top-level definition → digest, for ``entry`` and every module of ``pipeline`` it reaches.

    ``entry`` is a dotted module name such as ``"pipeline.shards"``. Statements outside any function or class are
    digested together under ``"<module>"``. ``own`` are modules of the user's, which count with what they import of
    ``pipeline`` and locally (``own_code.py``).
    """
    found: dict[str, dict[str, str]] = {}
    waiting, packages = [entry, *own], frozenset(module.partition(".")[0] for module in own)
    seen = set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        if read := _read(module, packages):
            found[module], imports = read
            waiting.extend(imports)
    return found


def _read(module: str, packages: frozenset[str]) -> tuple[dict[str, str], tuple[str, ...]] | None:
    if module.partition(".")[0] != "pipeline":
        return read_own_module(module, packages)
    # What own code imports may be a name in a module.
    return None if _counts_not(module) or not _module_path(module).is_file() else read_module(module)


def _counts_not(module: str) -> bool:
    return module in BOOKKEEPING or module.startswith(_SETTINGS) or module.endswith(f".{_SPEAKING}")


# The stages share most of their modules.
@cache
def read_module(module: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Definition → digest, and the modules of ours that it imports."""
    path = _module_path(module)
    definitions, imports = read_module_text(path.read_bytes())
    return {**definitions, **_template_digests(path)}, tuple(_imports_of_ours(imports))


def _installed_version(name: str) -> str:
    for candidate in _ALTERNATIVES.get(name, (name,)):
        try:
            return importlib.metadata.version(candidate)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "absent"


@cache
def _package_folder(package: str) -> Path:
    return Path(importlib.util.find_spec(package).origin).parent


def _module_path(module: str) -> Path:
    package, *names = module.split(".")
    base = _package_folder(package).joinpath(*names)
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def _imports_of_ours(imports: Iterable[Import]) -> Iterable[str]:
    for found in imports:
        if found.level is None and found.module.startswith("pipeline."):
            yield found.module
        elif found.level is not None and found.module.split(".")[0] == "pipeline":
            yield from _modules_named(found)


def _modules_named(found: Import) -> Iterable[str]:
    """``from pipeline import stream`` names a module, ``from pipeline.stream import x`` a module's content."""
    if found.module != "pipeline":
        yield found.module
    submodules = (f"{found.module}.{name}" for name in found.names)
    yield from (name for name in submodules if _module_path(name).is_file())


def _template_digests(path: Path) -> dict[str, str]:
    """A package's templates are code too: they shape what it writes."""
    templates = sorted(path.parent.glob("templates/*")) if path.name == "__init__.py" else []
    return {f"templates/{file.name}": hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in templates}
