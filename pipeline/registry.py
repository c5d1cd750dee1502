"""Registries that map names of extensions to ``module:object``.

Another package adds a name with an entry point of the group ``tensorcraft.<registry>``. Every process sees it,
including the child process of a stage and workers of Beam.
"""

import importlib.metadata
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from typing import Any

from pipeline.errors import SettingsError


@cache
def _entry_points(path: tuple[str, ...]) -> Any:
    """The entry points of all packages in ``path``, which is ``sys.path``."""
    return importlib.metadata.entry_points()


class Registry(Mapping[str, str]):
    """Mapping from names to ``module:object``. Built-in names come first, and packages cannot replace them."""

    def __init__(self, name: str, builtin: Mapping[str, str], unlisted: Mapping[str, str] | None = None) -> None:
        self.group, self.builtin = f"tensorcraft.{name}", builtin
        #: Names that are as valid as built-in ones, but too many for a list.
        self.unlisted = unlisted or {}

    @cached_property
    def _outside(self) -> Mapping[str, str]:
        # The search takes tens of milliseconds, so it waits for an unknown name or a list of all names.
        found = _entry_points(tuple(sys.path)).select(group=self.group)
        return {entry.name: entry.value for entry in found if entry.name not in self.builtin}

    def __getitem__(self, name: str) -> str:
        """Return the ``module:object`` of a name. KeyError: the name is unknown."""
        own = self.builtin if name in self.builtin else self.unlisted
        return own[name] if name in own else self._outside[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over all names except the unlisted ones, starting with the built-in names."""
        yield from (*self.builtin, *sorted(self._outside))

    def __len__(self) -> int:
        """Return the number of names."""
        return len(self.builtin) + len(self._outside)

    def load(self, name: str) -> Any:
        """Import the object of a name. SettingsError: the object of another package cannot be imported."""
        try:
            return pkgutil.resolve_name(self[name])
        # Code of other packages may raise any exception.
        except Exception as error:
            if name in self.builtin:
                raise
            raise SettingsError(
                f"{self.group} {name!r}: importing {self[name]} raised {type(error).__name__} ({error}). Repair or "
                "uninstall the package that has this entry point."
            ) from error

    def is_ours(self, name: str) -> bool:
        """Whether the pipeline provides the name."""
        return name in self.builtin or name in self.unlisted

    def is_outside(self, name: str) -> bool:
        """Whether another package provides the name."""
        return not self.is_ours(name) and name in self._outside

    def outside_modules(self, *names: str) -> tuple[str, ...]:
        """Modules of names of other packages. Fingerprints cover their code like user code."""
        return tuple(self[name].partition(":")[0] for name in names if self.is_outside(name))
