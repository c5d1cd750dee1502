"""Export: the run in the forms that serve it elsewhere; asked for by itself, with ``make export``."""

import contextlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from pipeline.artefacts import layout
from pipeline.config.training import ExportSettings
from pipeline.errors import DamagedArtefactError, SettingsError
from pipeline.problems.units import IMAGE_CLASSIFICATION
from pipeline.stage_process import in_child
from tasks import remote_cache
from tasks.records import Records
from tasks.stage import Stage
from tasks.status import Artefact
from tasks.train import Train


class Export(Stage, parameters=ExportSettings):
    """Section [Export]; the artifact is a SavedModel and two LiteRT networks, each compared with model.keras."""

    kind = layout.EXPORTS
    entry = "pipeline.runs.export"
    packages = ("ai-edge-litert", "keras", "numpy", "tensorflow")

    def requires(self) -> Train:
        return Train()

    def upstream(self) -> object:
        # It imports the schemas of a run.
        from pipeline.runs.metrics import weights_digest

        # A run that was trained again may have other weights.
        run, manifest = self.requires(), None
        with contextlib.suppress(DamagedArtefactError):
            manifest = run.output().manifest()
        # The remote alone may have the run.
        if manifest is None and run.may_be_fetched():
            held = remote_cache.shared().find(run.kind, run.output().expected)
            manifest = held.manifest if held else None
        return {"run": run.output().expected, "weights": manifest and weights_digest(manifest)}

    def label(self) -> str:
        return self.requires().label()

    def check(self) -> None:
        if (source := Records().source()) and source.problem != IMAGE_CLASSIFICATION:
            raise SettingsError(
                f"Export: expected a run that classifies images, got one of the problem {source.problem}. The forms it "
                "writes take pixels; model.keras, in the run's folder, takes the tokens of a text in any Keras."
            )
        super().check()

    def bytes_needed(self) -> int:
        # Measured on the baseline CNN: 3.4 MB.
        return 10_000_000

    def make(self, folder: Path) -> Mapping:
        if not find_spec("ai_edge_litert"):
            raise SettingsError(
                "Export: expected the package ai_edge_litert, it is not installed. Install what export needs with: "
                "pip install '.[export]'"
            )
        run = self.requires()
        # What it was trained on, to calibrate and to try each form.
        run.have_below()
        job = {
            "run": run.output().folder,
            "records": Records().output().folder,
            "folder": folder,
            "calibration_examples": self.calibration_examples,
            "model": run.model,
        }
        self.facts = in_child("pipeline.runs.export:export", job)
        return {}

    def publish(self, artefact: Artefact) -> None:
        super().publish(artefact)
        for name, form in self.facts["forms"].items():
            print(
                f"{name:15} {form['bytes'] / 1e6:6.2f} MB  accuracy {form['accuracy']:.4f}  "
                f"agrees with model.keras on {100 * form['agreement']:.2f} % of {self.facts['num_examples']:,} images"
            )
        print(f"Export: {artefact}")
