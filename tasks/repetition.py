"""Repetition: the run trained once more, to see whether its weights come out the same; ``make verify-determinism``."""

import contextlib
import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import luigi

from pipeline.artefacts import layout
from pipeline.config.refusal import refuse
from pipeline.config.training import RepetitionSettings
from pipeline.errors import DamagedArtefactError, GateError, SettingsError
from tasks.process import console
from tasks.report import Report
from tasks.stage import Stage
from tasks.train import Train

if TYPE_CHECKING:
    from pipeline.runs.repetition import Repetition as Found


class Repetition(Stage, parameters=RepetitionSettings):
    """Section [Repetition]; the artefact says with which weights a run ended, and with which it ended again."""

    kind = layout.REPETITIONS
    entry = "pipeline.runs.repetition"
    packages = ()
    # What was seen on this machine.
    is_shared = False
    # It trains.
    resources = Train.resources

    def requires(self) -> Train:
        """The run to train again."""
        return self._run

    @cached_property
    def _run(self) -> Train:
        if not self.of:
            return Train()
        # By settings and not by what its manifest says: that may come from anywhere, and names code to run.
        known = {run.output().folder.name: run for run in _runs() if run.is_known()}
        for name, run in known.items():
            if self.of in (name, run.output().expected):
                return run
        raise SettingsError(
            f"[Repetition] of: expected a run that the settings reach, of {', '.join(known) or 'which there is none'}; "
            f"got {self.of!r}. Give the settings that it was made with: EXPERIMENT=… and ARGS=…"
        )

    def complete(self) -> bool:
        """As any stage's, of a run that one process trains."""
        if (processes := Train().processes) > 1:
            with console.leaving_on_errors():
                refuse("Train", "processes", "1, to train a run again", processes)
        return super().complete()

    def upstream(self) -> object:
        """The run, and the weights that it ended with."""
        return self.requires().trained()

    def label(self) -> str:
        """The network."""
        return self.requires().label()

    def folders(self) -> list[Path]:
        """Those of every run that the settings reach: each may have been asked for by its name."""
        return [folder for run in _runs() if run.is_known() for folder in run.made_of_it(self.kind)]

    def bytes_needed(self) -> int:
        """A run and its checkpoints, out of sight."""
        return super().bytes_needed() + self.requires().bytes_needed()

    def make(self, folder: Path) -> Mapping:
        """Train the run again, from its first epoch and out of sight, and compare the weights."""
        from pipeline import machine
        from pipeline.runs.repetition import check_machine, compare

        run = self.requires()
        check_machine(run.output().folder, machine.describe())
        run.have_below()
        with tempfile.TemporaryDirectory(prefix=".again-", dir=folder.parent) as scratch:
            again = Path(scratch) / "run"
            again.mkdir()
            run.train_into(again, Path(scratch) / "checkpoints")
            self.found = compare(run.output().folder, again, folder, self.known())
        # Not final: what came out otherwise once may do so again.
        return {} if self.found.is_identical else {"provisional": "the weights came out otherwise"}

    def known(self) -> "Found | None":
        """What was found before, where there is something."""
        from pipeline.runs.repetition import read_repetition

        with contextlib.suppress(DamagedArtefactError):
            return read_repetition(self.output().folder)
        return None

    def run(self) -> None:
        """Publish what was found, and say it.

        Raises:
            GateError: the weights came out otherwise.
        """
        self.found = None
        super().run()
        if self.found is None:
            return
        name, first = self.requires().output().folder.name, self.found.first
        if not self.found.is_identical:
            seen = ", ".join(f"{one.weights_sha256} on {one.hostname}" for one in self.found.again)
            raise GateError(
                f"{name}: trained again it ended with other weights, sha256 {first.weights_sha256} on "
                f"{first.hostname}, then {seen}. [Train] deterministic = true asks for kernels that do not differ."
            )
        print(f"Repetition: {name} is bit-identical, weights sha256 {first.weights_sha256} each time: {self.output()}")


@Repetition.event_handler(luigi.Event.DEPENDENCY_PRESENT)
def say_nothing_to_do(repetition: Repetition) -> None:
    """It was trained again before, and came out the same."""
    found = repetition.known()
    where = f" by {found.again[-1].hostname} at {found.again[-1].finished_at}" if found else ""
    name = repetition.requires().output().folder.name
    print(f"Repetition: {name} was found bit-identical{where}: {repetition.output()}")


def _runs() -> list[Train]:
    return [Train(), *Report().requires()]
