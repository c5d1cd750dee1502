import pytest
from training_runs import run

from pipeline.training import loop


@pytest.fixture(scope="session")
def trained(small_records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "a"
    return folder, run(small_records, folder)


class Killed(Exception):
    """Stands for a kill: nothing of ours catches it."""


@pytest.fixture
def run_killed_after(small_records, tmp_path, monkeypatch):
    """A function that trains until the checkpoint of an epoch is there; it lies in tmp_path / "checkpoints"."""

    def train(epochs_done, **settings):
        report = loop._report

        def kill(row, *more):
            if row["epoch"] == epochs_done:
                raise Killed
            return report(row, *more)

        with monkeypatch.context() as patch:
            patch.setattr(loop, "_report", kill)
            with pytest.raises(Killed):
                run(small_records, tmp_path / f"killed-{epochs_done}", checkpoints=tmp_path / "checkpoints", **settings)

    return train
