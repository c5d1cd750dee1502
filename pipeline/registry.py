"""Registries: names of extensions, each with the ``module:object`` that it stands for.

A package from outside adds a name by an entry point of the group ``tensorcraft.<registry>``. So every process sees it,
also a stage's child process and a worker of Beam.
"""

import importlib.metadata
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from pipeline.errors import SettingsError


class Registry(Mapping[str, str]):
    """Name → ``module:object``. The pipeline's own names come first, and a package cannot replace them."""

    def __init__(self, name: str, builtin: Mapping[str, str]) -> None:
        self.group, self.builtin = f"tensorcraft.{name}", builtin

    @cached_property
    def _outside(self) -> Mapping[str, str]:
        # Takes tens of milliseconds, so only a name that is not built in asks for it, or a list of all names.
        found = importlib.metadata.entry_points(group=self.group)
        return {one.name: one.value for one in found if one.name not in self.builtin}

    def __getitem__(self, name: str) -> str:
        """What a name stands for. KeyError: it is unknown."""
        return self.builtin[name] if name in self.builtin else self._outside[name]

    def __iter__(self) -> Iterator[str]:
        """All names."""
        yield from (*self.builtin, *sorted(self._outside))

    def __len__(self) -> int:
        """The number of names."""
        return len(self.builtin) + len(self._outside)

    def load(self, name: str) -> Any:
        """Import what a name stands for. SettingsError: a package from outside cannot be imported."""
        try:
            return pkgutil.resolve_name(self[name])
        # Code from outside may raise anything.
        except Exception as error:
            if name in self.builtin:
                raise
            raise SettingsError(
                f"{self.group} {name!r}: importing {self[name]} raised {type(error).__name__}: {error}. Repair or "
                "uninstall the package that has this entry point."
            ) from error

    def is_outside(self, name: str) -> bool:
        """Whether a package from outside has the name."""
        return name not in self.builtin and name in self._outside

    def outside_modules(self, *names: str) -> tuple[str, ...]:
        """The modules of names from outside: their code is part of an identity, as user code is."""
        return tuple(self[name].partition(":")[0] for name in names if self.is_outside(name))
