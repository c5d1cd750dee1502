"""Figures for monitoring, read back with the parser of Prometheus's own client."""

import pytest
from report_runs import RUN as FINISHED_RUN
from report_runs import SKIPPED as SKIPPED_RUN
from scheduled import samples

from pipeline.runs.record import RunRecord
from tasks.operations.monitoring import Figures, write_figures

RUN = RunRecord(**FINISHED_RUN | {"requested_device": "cpu", "examples_per_second": 6990.0, "val_accuracy": 0.739})
SKIPPED = RunRecord(**FINISHED_RUN | SKIPPED_RUN | {"requested_device": "tpu"})


def test_the_figures_of_a_run_are_read_back(tmp_path):
    path = tmp_path / "tensorcraft.prom"
    figures = Figures(
        exit_code=0,
        ended_at=1_795_000_000.0,
        seconds=61.5,
        last_success=1_795_000_000.0,
        stage_seconds={"Train": 41.4, 'odd"name\n': 1.0},
        records={"train": 50_000, "test": 10_000},
        runs=[RUN, SKIPPED],
    )
    write_figures(path, figures)
    found = samples(path)
    assert found["run_exit_code"] == [({}, 0)]
    assert found["success_timestamp_seconds"] == [({}, 1_795_000_000)]
    assert found["stage_duration_seconds"] == [({"stage": "Train"}, 41.4), ({"stage": 'odd"name\n'}, 1)]
    assert found["records"] == [({"split": "train"}, 50_000), ({"split": "test"}, 10_000)]
    ((labels, rate),) = found["train_images_per_second"]
    assert (labels["requested_device"], labels["global_batch_size"], rate) == ("cpu", "128", 6990)
    assert [value for _, value in found["test_accuracy_ratio"]] == [0.739]
    assert [value > 0 for _, value in found["test_loss_nats"]] == [True]
    assert [file.name for file in tmp_path.iterdir()] == ["tensorcraft.prom"]


@pytest.mark.parametrize(("tokens", "many"), [("", "characters"), ("bytes", "bytes")])
def test_the_throughput_of_a_text_is_of_what_it_predicts(tmp_path, tokens, many):
    run = RUN.model_copy(update={"problem": "next_token", "tokens": tokens})
    write_figures(tmp_path / "tensorcraft.prom", Figures(exit_code=0, ended_at=1.0, seconds=0.5, runs=[run]))
    found = samples(tmp_path / "tensorcraft.prom")
    assert [name for name in found if name.startswith("train_")] == [f"train_{many}_per_second"]


def test_what_is_not_known_is_left_out(tmp_path):
    path = tmp_path / "tensorcraft.prom"
    write_figures(path, Figures(exit_code=3, ended_at=1.0, seconds=0.5))
    assert set(samples(path)) == {"run_exit_code", "run_duration_seconds", "run_end_timestamp_seconds"}
