"""The Export stage, which writes the model of a run in formats for other programs."""

import contextlib
import json
import logging
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import luigi

from pipeline.artifacts import layout
from pipeline.errors import DamagedArtifactError, DatasetUnavailableError, SettingsError, refuse
from pipeline.optional_packages import install_command
from pipeline.problems.problem import units_of
from pipeline.problems.results import results_of
from pipeline.runs.exporters import Exporter
from pipeline.settings.training import DEFAULT_FORMATS, EXPORTERS, ExportSettings
from pipeline.sources.source import SYNTHETIC
from pipeline.stage_process import in_child
from tasks import remote_cache
from tasks.data import Records, Source
from tasks.stage import Stage
from tasks.train import Train

_logger = logging.getLogger(__name__)


class Export(Stage, parameters=ExportSettings):
    """Section [Export]. The artifact is a model in several formats, each compared with model.keras."""

    kind = layout.EXPORTS
    entry = "pipeline.runs.export"

    @property
    def packages(self) -> tuple[str, ...]:
        used = {package for exporter in self._exporters().values() for package in exporter.packages}
        return (*sorted(used), "keras", "numpy", "tensorflow")

    def requires(self) -> Train:
        return Train()

    def upstream(self) -> object:
        # It imports the schemas of a run.
        from pipeline.runs.metrics import weights_digest

        # A retrained run may have other weights.
        run, manifest = self.requires().output(), None
        with contextlib.suppress(DamagedArtifactError):
            manifest = run.manifest()
        # The run may be on the remote only.
        if manifest is None and self.requires().can_be_fetched():
            held = remote_cache.shared().find(Train.kind, run.expected)
            manifest = held and held.manifest
        return {"run": run.expected, "weights": manifest and weights_digest(manifest)}

    def own_modules(self) -> tuple[str, ...]:
        return EXPORTERS.outside_modules(*self._exporters())

    def label(self) -> str:
        return self.requires().label()

    def check(self) -> None:
        if source := Records().source():
            exporters, requested = self._exporters(), Source().settings
            if unsupported := [name for name, one in exporters.items() if source.problem not in one.problems]:
                possible = [name for name in EXPORTERS if source.problem in EXPORTERS.load(name).problems]
                expected = f"formats that can hold models of {source.problem} ({', '.join(possible) or 'none'})"
                refuse("Export", "formats", expected, ", ".join(unsupported))
            if source.origin == SYNTHETIC and requested.may_be_replaced:
                raise DatasetUnavailableError(
                    f"Export: expected a run on real data, got placeholder data for {requested.dataset}. Pass the "
                    "settings of the run, for example --Source-dataset folder --Source-path photos."
                )
            missing = [package for package in self.packages if not find_spec(package)]
            if missing and not self.status().is_available:
                remedy = f"Install it with: {install_command('export')}"
                raise SettingsError(f"Export: the package {missing[0]} is not installed. {remedy}")
        super().check()

    def _exporters(self) -> dict[str, Exporter]:
        """The exporters of the formats to write, by name. By default, those that support the problem."""
        if self.formats:
            return {name: EXPORTERS.load(name) for name in self.formats}
        problem, outside = Records().upstream()["problem"], filter(EXPORTERS.is_outside, EXPORTERS)
        exporters = {name: EXPORTERS.load(name) for name in (*DEFAULT_FORMATS, *outside)}
        return {name: exporter for name, exporter in exporters.items() if problem in exporter.problems} or exporters

    def bytes_needed(self) -> int:
        # Measured on the baseline CNN: 3.4 MB.
        return 10_000_000

    def make(self, folder: Path) -> Mapping:
        run = self.requires()
        # The records, to calibrate and to test each form.
        run.fetch_inputs()
        job = {"run": run.output().folder, "records": Records().output().folder, "folder": folder, "model": run.model}
        settings = {"formats": [*self._exporters()], "calibration_examples": self.calibration_examples}
        in_child("pipeline.runs.export:export", job | settings)
        return {}

    def show(self) -> None:
        """Print the size, latency and agreement of each form, the name of the run and the path of the export."""
        from pipeline.runs.metrics import EXPORT_NAME

        facts = json.loads((self.output().folder / EXPORT_NAME).read_text(encoding="utf-8"))
        problem = Records().upstream()["problem"]
        count, metric = f"{facts['num_examples']:,} {units_of(problem).examples}", results_of(problem).accuracy_name
        for name, form in facts["forms"].items():
            accuracy = "" if form["accuracy"] is None else f"test {metric} {form['accuracy']:.2%}  "
            print(
                f"{name:15} {form['bytes'] / 1e6:6.2f} MB  {form['milliseconds']:6.2f} ms  {accuracy}"
                f"agrees with model.keras on {100 * form['agreement']:.2f}% of {count}"
            )
        # Their fingerprints differ, and the run may be on the remote only.
        print(f"Run:    {self.requires().output().folder.name}\nExport: {self.output()}")


Export.event_handler(luigi.Event.SUCCESS)(Export.show)


@Export.event_handler(luigi.Event.DEPENDENCY_PRESENT)
def say_nothing_to_do(export: Export) -> None:
    """Luigi found a fresh export."""
    _logger.info("Nothing to do. The export is fresh.")
    export.show()
