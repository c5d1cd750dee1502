"""The Train stage, which trains a Keras model on the records. Its artifact is a run."""

import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import luigi.interface

from pipeline import machine
from pipeline.artifacts import layout
from pipeline.artifacts.fingerprint import code_digests, fingerprint, package_versions
from pipeline.artifacts.manifest import read_manifest
from pipeline.artifacts.publish import discard
from pipeline.errors import (
    DamagedArtifactError,
    HardwareMismatchError,
    PipelineError,
    TimeLimitError,
    refuse,
    without_userinfo,
)
from pipeline.hardware.placement import choose_backend, require_backend
from pipeline.hardware.runtime import explain
from pipeline.optional_packages import DISTRIBUTION, install_command, installed_version
from pipeline.problems import PROBLEMS, problem_class
from pipeline.records.features import content_name, stored_form, stored_spec
from pipeline.runs.initial_weights import InitialWeights, find_initial_weights
from pipeline.settings.schema import own_modules, settings_of
from pipeline.settings.training import FULL, JAX, MODELS, PRETRAINED, RECIPES, TrainSettings, refuse_without_validation
from pipeline.stage_process import in_child
from pipeline.training.heartbeat import Heartbeat
from pipeline.training.process_group import ProcessGroup, process_group
from tasks import config_files
from tasks.data import Records
from tasks.process import console
from tasks.process.interrupt import stop, time_limit
from tasks.settings import Experiment, root_folder
from tasks.stage import Artifact, Stage, State, Status, stages_up_to

if TYPE_CHECKING:
    from pipeline.runs.record import Origin, RunRecord

# Settings that change the features of a frozen backbone.
_OF_FEATURES = ("model", "backend", "device", "precision", "jit_compile")
# In the manifest of a run.
_VIEWS = "test_time_augmentation"
# A TPU is initialized in well under a minute.
_DEVICE_SECONDS = 180

_logger = logging.getLogger(__name__)


class Train(Stage, parameters=TrainSettings):
    """Section [Train]. A run has a record, metrics, weights, a model and TensorBoard logs."""

    kind = layout.RUNS
    entry = "pipeline.training.train"
    # By default there is one, so that no two runs train at once and spoil each other's times.
    resources = {"accelerator": 1}

    _chosen: Mapping[str, object] = {}
    #: Number and settings in a sweep (report.py). Empty for a single run.
    place = ""
    #: Context manager around a training, which gets the folder of the run (report.py).
    watching: Callable[[Path], contextlib.AbstractContextManager] = contextlib.nullcontext

    @property
    def packages(self) -> tuple[str, ...]:
        # TensorFlow makes the batches on either backend, SciPy the shares of mixup and a new last layer.
        backend = ("jax", "jaxlib") if choose_backend(self.settings) == JAX else ()
        uses_scipy = "mixup" in self.settings.augment or (self.initial and self.settings.model in PRETRAINED)
        return ("keras", "numpy", "tensorflow", *backend, *(("scipy",) if uses_scipy else ()))

    def requires(self) -> Records:
        return Records()

    def make_settings(self) -> TrainSettings:
        settings = super().make_settings()
        require_backend(settings)
        luigi_core = luigi.interface.core()
        if settings.processes > 1 and not luigi_core.local_scheduler:
            remedy = " Set TENSORCRAFT_SCHEDULER to local."
            refuse("core", "local_scheduler", "true where several processes train", False, remedy)
        if settings.processes > 1 and luigi_core.workers > 1:
            refuse("core", "workers", "1 where several processes train", luigi_core.workers)
        # The weights of a model that is chosen later are known later.
        find_initial_weights(settings.initial_weights, root_folder() / layout.RUNS, settings.model)
        return settings

    @cached_property
    def initial(self) -> InitialWeights | None:
        """The initial weights. The model must be known."""
        settings = self.settings
        return find_initial_weights(settings.initial_weights, root_folder() / layout.RUNS, settings.model)

    def chosen(self) -> Mapping[str, object]:
        if not self._chosen and (source := self.inputs[0].source()):
            form = stored_form(source.features, self.inputs[0].settings, source.shorter_sides)
            content = stored_spec(source.features, form)[content_name(source.features)]
            shape = form.shape(content) if form else content.shape
            problem = problem_class(source.problem)()
            self._chosen = problem.chosen(self.given, shape, self.inputs[0].num_examples()["train"])
        return self._chosen

    def check(self) -> None:
        splits, size = self.inputs[0].num_examples(), self.settings.global_batch_size
        examples = splits.get("train")
        if examples is not None and size > examples:
            refuse("Train", "global_batch_size", f"at most the {examples} examples of the train split", size)
        if splits:
            refuse_without_validation(self.settings, splits)
        if source := self.inputs[0].source():
            problem_class(source.problem)().check(self.settings)
        # The storage root is free until the settings say which process this is.
        if not self.group.is_chief:
            expected = "0, as Luigi runs in process 0 alone. Start the others with: tensorcraft run"
            refuse("Train", "process_id", expected, self.group.rank)
        super().check()

    def upstream(self) -> object:
        initial = {"initial_weights": self.initial.digest} if self.initial else {}
        return {"records": self.inputs[0].output().expected} | initial

    def own_modules(self) -> tuple[str, ...]:
        return self._named_modules() + PROBLEMS.outside_modules(self.inputs[0].upstream()["problem"])

    def _named_modules(self) -> tuple[str, ...]:
        model, recipe = self.settings.model, self.settings.training_recipe
        return own_modules(MODELS.get(model, model), RECIPES.get(recipe, recipe))

    def label(self) -> str:
        # Programs such as rsync take the text before a colon for a host.
        return self.settings.model.replace(":", ".")

    def bytes_needed(self) -> int:
        # The baseline CNN has 2 MB of weights in two files, logs, and two checkpoints of 3 MB. The child process
        # refuses a larger model once it is built.
        return 10_000_000

    def complete(self) -> bool:
        """Whether no stage has work to do. An absent device or file of weights fails before any data is prepared."""
        with console.leaving_on_errors():
            if file := self._weights_to_download():
                _logger.info("Train: downloading %s to %s.", file.name, file.parent)
                in_child("pipeline.models.keras_applications:download", {"model": self.model, "file": file})
                del self.initial
            if super().complete():
                return True
            needs_device = self.device in ("gpu", "tpu") and self.on_mismatch == "fail" and not self._is_trained()
            # One process alone cannot open a device that several share.
            if self.group.processes > 1:
                Train().heartbeat.wait_for_all(self.join_timeout_seconds)
            elif needs_device and not self.status().is_available and (error := device_error(self.settings)):
                raise error
        return False

    def prepare(self) -> None:
        # The import takes seconds, and this process does not need to wait for it. Luigi would fork several workers.
        is_alone = luigi.interface.core().workers == 1 and not self.can_be_fetched()
        if is_alone and choose_backend(self.settings) != JAX:
            in_child("pipeline.training.train:train", None, cpu_devices=self.settings.replicas)

    def is_resolved(self) -> bool:
        return super().is_resolved() and not self._weights_to_download()

    def local_status(self) -> Status:
        if super().is_resolved() and (file := self._weights_to_download()):
            return Status(State.WAITING, (f"for {file.name}, which a run downloads to {file.parent}",))
        status = super().local_status()
        # A run that is here has reasons of its own.
        if status.state not in (State.NEW, State.STALE) or self.is_forced() or self.output().folder.is_dir():
            return status
        for folder in sorted(self.checkpoints().glob("epoch-*"), reverse=True):
            with contextlib.suppress(DamagedArtifactError, KeyError, TypeError):
                identity = read_manifest(folder)["identity"]
                if identity["run"] == self.output().expected:
                    finished = f"{identity['epoch']} of {self.settings.epochs}"
                    reason = f"interrupted after epoch {finished}, resuming from the checkpoint"
                    return replace(status, reasons=(reason,))
        return status

    def _weights_to_download(self) -> Path | None:
        """File of pretrained weights that is not in Keras's cache. The identity needs its digest."""
        is_needed = self.model in PRETRAINED and self.initial and not self.initial.digest
        return self.initial.file if is_needed else None

    def can_be_fetched(self) -> bool:
        # Several processes train a run themselves. A run that only lacks its evaluation is here.
        return super().can_be_fetched() and self.processes == 1 and not self._is_trained()

    def still_true(self, manifest: Mapping) -> Sequence[str]:
        if reasons := self._why_train_again(manifest):
            return reasons
        views = manifest.get(_VIEWS, self.test_time_augmentation)
        changed = f"{_VIEWS}: {views} → {self.test_time_augmentation}, which needs a new evaluation only"
        return [changed] if views != self.test_time_augmentation else []

    def _why_train_again(self, manifest: Mapping) -> Sequence[str]:
        """A run on another device is kept if the settings allow that and the device is still absent."""
        reasons, fallback = super().still_true(manifest), manifest.get("fallback")
        if reasons or not fallback:
            return reasons
        if self.on_mismatch == "fail":
            return [f"{fallback}, and [Train] on_mismatch = fail requires {self.device}"]
        return [] if device_error(self.settings) else [f"{fallback}, and {self.device} is available now"]

    @cached_property
    def group(self) -> ProcessGroup:
        """The processes that train together, and which this is."""
        return process_group(self.settings)

    @cached_property
    def heartbeat(self) -> Heartbeat:
        """Shows the other processes that this one is alive, from its start to its last stage."""
        return Heartbeat(root_folder(), self.group, settings=self.digest(), on_failure=stop)

    def digest(self) -> str:
        """A digest of settings, code and packages, which must be equal in all processes."""
        # Process 0 alone may know the examples, and thus the problem and the chosen settings.
        shared = {stage.task_family: stage.shaping_settings() for stage in stages_up_to(self)}
        code = code_digests(self.entry, self._named_modules())
        return fingerprint({"settings": shared, "code": code, "packages": package_versions(self.packages)})

    def follow(self) -> None:
        """Train with process 0 at each of its requests, until it is done."""
        from pipeline.training import launch

        heartbeat, last = self.heartbeat, ""
        while found := heartbeat.next_request(last, self.join_timeout_seconds):
            last, content = found
            _logger.info("Train: joining process 0 at %s:%d.", self.group.host, self.group.port)
            # Process 0 alone keeps its files.
            with (
                tempfile.TemporaryDirectory(prefix="tensorcraft-") as scratch,
                time_limit("Train", self.time_limit_seconds),
            ):
                launch.follow(content, self.group, Path(scratch), heartbeat)
        heartbeat.leave(is_done=True)
        _logger.info("Train: process 0 has finished.")

    def make(self, folder: Path) -> Mapping:
        """Train, or only evaluate again. Details are in the run's record."""
        details = {_VIEWS: self.test_time_augmentation}
        # Luigi may run the same task again, such as after an absent device.
        self.outcome = Stage.outcome
        if self._is_trained():
            self.outcome = "reevaluated in {:.1f} s"
            run, records = self.output(), self.inputs[0].output()
            job = {"run": run.folder, "records_folder": records.folder, "folder": folder, "model": self.settings.model}
            in_child("pipeline.training.results:reevaluate", job | details)
            return details | {name: value for name, value in run.manifest().items() if name == "fallback"}
        features = self.features()
        with self.watching(folder):
            record = self.train_into(folder, self.checkpoints(), features)
        if record.status == "skipped":
            self.outcome = "skipped"
            # A fallback run keeps its numbers. Its device was there when still_true looked for it, and is not now.
            with contextlib.suppress(DamagedArtifactError):
                if fallback := self.output().manifest().get("fallback"):
                    mismatch = record.mismatch.model_dump()
                    raise HardwareMismatchError(
                        f"[Train] device: {self.device} was requested. {mismatch['cause']} {mismatch['remedy']} "
                        f"The existing run is kept ({fallback}): {self.output()}",
                        mismatch,
                    )
            return {"provisional": f"{self.device} was unavailable, the next run tries it again"}
        if record.mismatch:
            used, requested = record.effective_device, record.mismatch.device
            details["fallback"] = f"trained on {used} because {requested} was unavailable"
        if features and features.status().is_fresh:
            details["features"] = features.expected
        return details

    def _is_trained(self) -> bool:
        """Whether the published run has the weights, so that only its evaluation can be missing."""
        if self.is_forced() or not self.is_resolved() or not (run := self.output()).status().is_fresh:
            return False
        return not self._why_train_again(run.manifest())

    def features(self) -> Artifact | None:
        """The features of a frozen backbone. None if the run needs none, or its inputs are not known."""
        # A training writes them, as the model is on its device only then. Runs with other seeds or epochs read them.
        is_frozen = self.is_resolved() and self.initial and self.settings.model in PRETRAINED
        if not is_frozen or self.fine_tune == FULL:
            return None
        identity = {**self.identity(), "settings": {name: getattr(self.settings, name) for name in _OF_FEATURES}}
        folder = self.root / layout.FEATURES / f"{self.label()}-{fingerprint(identity)[:12]}"
        return Artifact(folder, identity, experiment=self.experiment_name())

    def train_into(self, folder: Path, checkpoints: Path, features: Artifact | None = None) -> "RunRecord":
        """Train into an empty folder, from a checkpoint if there is one. Without ``features``, compute them."""
        # The schemas of a run take as long to import as the rest of a start.
        from pipeline.training import launch

        records = self.inputs[0]
        request = launch.TrainRequest(
            records=records.output().folder,
            settings=self.settings,
            requested_dataset=records.inputs[0].requested(),
            fingerprint=self.output().expected,
            checkpoints=checkpoints,
            started=time.perf_counter(),
            initial=self.initial,
            features=features,
            chosen=self.chosen(),
            experiment=self.experiment_name(),
            origin=self.origin(),
            group=self.group,
        )
        return launch.train_in_child(request, folder, None if self.processes == 1 else Train().heartbeat)

    def origin(self) -> "Origin":
        """Code of the run, and its settings that differ from their defaults, or that config.ini changes."""
        from pipeline.runs.record import Origin, git_state

        in_file, settings = config_files.settings_in(config_files.existing("config.ini")), {}
        for owner in (Experiment(), *stages_up_to(self)):
            for setting in settings_of(owner.parameters):
                value, section = owner.param_kwargs[setting.name], in_file.get(setting.section, {})
                text = section.get(setting.name, setting.written(setting.default)).replace("%%", "%")
                # config.ini may set another value than the default.
                if not value == setting.default == setting.spelled(setting.parse(text)):
                    settings.setdefault(setting.section, {})[setting.name] = without_userinfo(setting.written(value))
        commit, is_dirty = git_state(config_files.project_folder())
        return Origin(settings=settings, commit=commit, is_dirty=is_dirty, version=installed_version(DISTRIBUTION))

    def checkpoints(self) -> Path:
        """Folder of the checkpoints of an interrupted run, outside its artifact."""
        return root_folder() / layout.CHECKPOINTS / self.output().folder.name

    def publish(self, artifact: Artifact) -> None:
        super().publish(artifact)
        discard(self.checkpoints())
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if uri and not self.outcome.startswith("reevaluated"):
            try:
                from pipeline.runs import tracking

                tracking.log_run(artifact.folder, tracking_uri=uri)
            except ModuleNotFoundError as error:
                remedy = f"Install it with: {install_command('mlflow')}"
                _logger.warning("Run not logged to MLflow. The package %s is not installed. %s", error.name, remedy)


def device_error(settings: TrainSettings) -> HardwareMismatchError | None:
    """The error of an absent device. An error that does not concern the device ends the process."""
    if settings.device == "gpu" and not machine.has_gpu_driver():
        # TensorFlow takes ten seconds to find the same.
        return explain("gpu", RuntimeError("no driver"))
    with console.leaving_on_errors():
        return _look_for_device(choose_backend(settings), settings.device)


@cache
def _look_for_device(backend: str, device: str) -> HardwareMismatchError | None:
    """Try the device in a child process, because a TPU that was initialized cannot be given back."""
    settings = TrainSettings(backend=backend, device=device)
    _logger.info("Train: checking for a %s.", "TPU or GPU" if device == "auto" else device.upper())
    job = {"settings": settings}
    try:
        with time_limit("Train", _DEVICE_SECONDS):
            in_child("pipeline.hardware.receipt:require_device", job, backend=backend, in_new_process=True)
    except TimeLimitError:
        message = f"[Train] device: {device} did not respond within {_DEVICE_SECONDS} s."
        return HardwareMismatchError(message, {"device": device, "cause": message, "remedy": ""})
    except HardwareMismatchError as error:
        return error
    except PipelineError:
        raise
    except Exception as error:
        _logger.exception("ERROR The process that checks the device failed.")
        raise SystemExit(1) from error
    return None
