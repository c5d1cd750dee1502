"""The study of a search, by Optuna. Several processes may share it.

Its journal ``search/<name>.journal`` records when a trial begins, finishes an epoch and ends. A trial names a file that
its process locks. If the process has ended, this lock is free, and the next process tries the settings again.
"""

import glob
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock, Timeout
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.storages.journal import JournalFileBackend, JournalStorage
from optuna.trial import FrozenTrial, TrialState

from pipeline.artifacts.publish import replacing
from pipeline.errors import DamagedArtifactError
from pipeline.runs.search import Search, Trial
from pipeline.settings.search_space import Range, Space

#: Chooses the settings of the next trial.
SAMPLER = optuna.samplers.TPESampler
# Number of best settings to train with more seeds.
_BEST = 3
# Fewest finished trials for importances, which compare this share of them, the best, with all.
_MIN_IMPORTANCE, _BEST_SHARE = 15, 0.3
_STATES = {TrialState.COMPLETE: "finished", TrialState.FAIL: "failed"}


class Study:
    """The study of the trials of a search, which all train with ``seed``."""

    def __init__(self, folder: Path, name: str, space: Space, *, metric: str, seed: int) -> None:
        """Open or create the journal. Raises DamagedArtifactError if it cannot be read."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.name, self.space, self.metric, self.seed = folder, name, space, metric, seed
        self._sign = 1 if metric == "validation_loss" else -1
        self._lock, self._owner = FileLock(folder / f".{name}.lock"), FileLock(folder / f".{name}.{uuid.uuid4()}.owner")
        journal = folder / f"{name}.journal"
        with self._lock:
            try:
                self._study = optuna.create_study(
                    storage=JournalStorage(JournalFileBackend(str(journal))),
                    study_name=name,
                    direction="minimize" if self._sign == 1 else "maximize",
                    # Epoch 1 does not yet show how a run ends.
                    pruner=optuna.pruners.MedianPruner(n_warmup_steps=2),
                    load_if_exists=True,
                )
                # Optuna does not check what it reads.
                self.best(), [*map(self._described, self._begun())]
            except (ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError) as error:
                expected = f"expected a journal of Optuna ({type(error).__name__})"
                remedy = "Remove it. The search then begins again and reuses finished runs."
                raise DamagedArtifactError(f"{journal}: {expected}. {remedy}") from error
            self._owner.acquire()

    def close(self) -> None:
        """Give back the trial that is not at its end."""
        self._owner.release()
        Path(self._owner.lock_file).unlink(missing_ok=True)

    def begin(self, requested: int) -> optuna.trial.Trial | None:
        """Begin a trial. None if so many trials are finished or running in other processes."""
        with self._lock:
            files = self.folder.glob(f".{glob.escape(self.name)}.*.owner")
            owners = [path.name for path in files if not _has_ended(path)]
            for trial in self._begun():
                if trial.state == TrialState.RUNNING and trial.user_attrs.get("owner") not in owners:
                    self._study.enqueue_trial(trial.params, {"instead_of": trial.number})
                    self._study.tell(trial.number, state=TrialState.FAIL)
            if (count := len(self._begun())) >= requested:
                return None
            # A sampler per trial, so that the draws do not depend on the process.
            self._study.sampler = SAMPLER(seed=(1000 * self.seed + count) % 2**32)
            trial = self._study.ask({name: _distribution(values) for name, values in self.space.items()})
            trial.set_user_attr("owner", Path(self._owner.lock_file).name)
            return trial

    def end(self, trial: optuna.trial.Trial, value: float | None, *, is_pruned: bool = False) -> None:
        """End a trial. It failed if it has no value and was not pruned."""
        state = TrialState.PRUNED if is_pruned else TrialState.FAIL if value is None else None
        self._study.tell(trial, None if state else value, state)

    def settings(self, trial: optuna.trial.Trial | FrozenTrial) -> dict[str, Any]:
        """Return the values that a trial tries."""
        space = ((name, self.space[name], value) for name, value in trial.params.items())
        return {name: values.rounded(value) if isinstance(values, Range) else value for name, values, value in space}

    def repeat(self, number: int, seed: int, value: float | None) -> None:
        """Record the value of a trial's settings with another seed."""
        with self._lock:
            key = f"repeats {number}"
            self._study.set_user_attr(key, {**self._study.user_attrs.get(key, {}), str(seed): value})

    def best(self) -> list[Trial]:
        """Return the best finished trials with different settings, the best mean first."""
        finished = [self._described(trial) for trial in self._begun() if trial.state == TrialState.COMPLETE]
        finished.sort(key=lambda trial: self._sign * trial.values[str(self.seed)])
        distinct = {str(trial.settings): trial for trial in reversed(finished)}.values()
        best = [trial for trial in finished if trial in distinct][:_BEST]
        # NaN is last.
        return sorted(best, key=lambda trial: (trial.mean() != trial.mean(), self._sign * trial.mean()))

    def write(self, experiment: str, requested: int, settings_file: Callable[[Mapping[str, Any]], str]) -> Search:
        """Write ``<name>.json``, and the best settings as ``<name>.ini``, which ``settings_file`` formats."""
        with self._lock:
            trials, best = [*map(self._described, self._begun())], self.best()
            values = [trial.values[str(self.seed)] for trial in trials if trial.state == "finished"]
            has_importances = len(values) >= _MIN_IMPORTANCE and len({*values}) > 1
            evaluator = PedAnovaImportanceEvaluator(target_quantile=_BEST_SHARE)
            search = Search(
                name=self.name,
                experiment=experiment,
                metric=self.metric,
                requested=requested,
                trials=trials,
                best=best,
                importances=get_param_importances(self._study, evaluator=evaluator) if has_importances else {},
                settings_file=settings_file(best[0].settings) if best else "",
            )
            for suffix, text in (("ini", search.settings_file), ("json", search.model_dump_json(indent=1) + "\n")):
                with replacing(self.folder / f"{self.name}.{suffix}") as temporary:
                    temporary.write_text(text, encoding="utf-8")
            return search

    def _described(self, trial: FrozenTrial) -> Trial:
        values, repeats = trial.intermediate_values, self._study.user_attrs.get(f"repeats {trial.number}", {})
        value = trial.value if trial.state == TrialState.COMPLETE else values.get(trial.last_step)
        return Trial(
            number=trial.number,
            settings=self.settings(trial),
            state=_STATES.get(trial.state, trial.state.name.lower()),
            epochs=trial.last_step or 0,
            values={str(self.seed): value, **repeats},
        )

    def _begun(self) -> list[FrozenTrial]:
        """Return the trials that have begun, without those that ended with their process."""
        trials = self._study.get_trials(deepcopy=False)
        given_back = {trial.user_attrs.get("instead_of") for trial in trials}
        return [trial for trial in trials if trial.state != TrialState.WAITING and trial.number not in given_back]


def _has_ended(owner: Path) -> bool:
    """Whether the process with this file has ended. Its file is then removed."""
    try:
        with FileLock(owner, timeout=0):
            owner.unlink(missing_ok=True)
    except Timeout:
        return False
    return True


def _distribution(values: Range | tuple[Any, ...]) -> BaseDistribution:
    if not isinstance(values, Range):
        return CategoricalDistribution(values)
    kind = IntDistribution if isinstance(values.low, int) else FloatDistribution
    return kind(values.low, values.high, log=values.is_log)
