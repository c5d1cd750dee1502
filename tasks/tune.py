"""Tune: measures how the network is best computed on this machine, once for machine, versions and model."""

from collections.abc import Mapping
from pathlib import Path

import luigi

from pipeline import machine
from pipeline.config import TrainSettings
from pipeline.errors import HardwareMismatchError
from tasks.process import console
from tasks.records import Records
from tasks.settings import IntSetting, time_limit_setting
from tasks.stage import Stage


class Tune(Stage):
    """Before Train where ``tune = measure``, on Train's settings; the artefact is a manifest with the choice."""

    kind = "tuning"
    entry = "pipeline.training.tuning"
    packages = ("keras", "numpy", "tensorflow")
    resources = {"accelerator": 1}

    model = luigi.Parameter()
    recipe = luigi.Parameter()
    global_batch_size = IntSetting()
    device = luigi.Parameter()
    precision = luigi.Parameter()
    jit_compile = luigi.Parameter()
    cache = luigi.Parameter()
    replicas = IntSetting()
    on_mismatch = luigi.Parameter(significant=False)
    tpu_address = luigi.Parameter(significant=False)
    tpu_zone = luigi.Parameter(significant=False)
    tpu_project = luigi.Parameter(significant=False)
    time_limit_seconds = time_limit_setting()

    def requires(self) -> Records:
        """The records: what is timed is the real stream."""
        return Records()

    def make_settings(self) -> TrainSettings:
        """Train's settings, as far as they decide what is fast."""
        return TrainSettings(**self.param_kwargs)

    def upstream(self) -> object:
        """The machine and the shape of the data; other records of the same shape are as fast."""
        source = self.requires().upstream()
        host = machine.describe()
        telling = ("cpu_model", "granted_cores", "granted_memory_bytes", "instruction_sets", "accelerators")
        return {
            "machine": {name: host[name] for name in telling},
            "image_shape": source["image_shape"],
            "num_examples": source["num_examples"],
        }

    def label(self) -> str:
        """The network."""
        return self.model

    def is_known(self) -> bool:
        """Whether the choice has been made: it is part of what Train is made from."""
        return super().is_known() and self.condition().state == "fresh"

    def choice(self) -> Mapping:
        """What was chosen, and the table of what was timed."""
        return self.output().manifest()["tuning"]

    def make(self, folder: Path) -> Mapping:
        """Time the candidates; the manifest holds all there is to say."""
        with console.quiet_imports():
            from pipeline.training import tuning

        try:
            return {"tuning": tuning.tune(self.requires().output().folder, self.settings)}
        except HardwareMismatchError:
            if self.on_mismatch != "skip":
                raise
            # Train says so, and why.
            return {"tuning": {"chosen": None}, "provisional": f"{self.device} was not there: it is tried again"}
