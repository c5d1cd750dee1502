"""Figures for monitoring, read back with the parser of Prometheus's own client."""

from dataclasses import replace

import pytest
from report_runs import RUN as FINISHED_RUN
from report_runs import SKIPPED as SKIPPED_RUN
from scheduled import samples

from pipeline.runs.record import RunRecord
from tasks.scheduled import Outcome, write_metrics

RUN = RunRecord(**FINISHED_RUN | {"requested_device": "cpu", "examples_per_second": 6990.0, "test_accuracy": 0.739})
ENDED = Outcome(
    task="Nightly",
    started_at="2026-11-20T02:00:00+00:00",
    seconds=61.5,
    exit_code=0,
    last_success="2026-11-20T02:01:00+00:00",
)
SUCCESS = 1_795_140_060.0
SKIPPED = RunRecord(**FINISHED_RUN | SKIPPED_RUN | {"requested_device": "tpu"})


def test_the_figures_of_a_run_are_read_back(tmp_path):
    path = tmp_path / "tensorcraft.prom"
    splits = {"train": {"num_examples": 50_000}, "test": {"num_examples": 10_000}}
    manifests = {"Records": {"seconds": 41.4, "splits": splits}, 'odd"name\n': {"seconds": 1.0}}
    write_metrics(path, ENDED, manifests, [RUN, SKIPPED])
    found = samples(path)
    assert found["run_exit_code"] == [({}, 0)]
    assert found["success_timestamp_seconds"] == [({}, SUCCESS)]
    assert found["stage_duration_seconds"] == [({"stage": "Records"}, 41.4), ({"stage": 'odd"name\n'}, 1)]
    assert found["records"] == [({"split": "train"}, 50_000), ({"split": "test"}, 10_000)]
    ((labels, rate),) = found["train_images_per_second"]
    assert (labels["requested_device"], labels["global_batch_size"], rate) == ("cpu", "128", 6990)
    assert [value for _, value in found["test_accuracy_ratio"]] == [0.739]
    assert [value > 0 for _, value in found["test_loss_nats"]] == [True]
    assert [file.name for file in tmp_path.iterdir()] == ["tensorcraft.prom"]


@pytest.mark.parametrize(("tokens", "many"), [("", "characters"), ("bytes", "bytes")])
def test_the_throughput_of_a_text_is_of_what_it_predicts(tmp_path, tokens, many):
    run = RUN.model_copy(update={"problem": "next_token", "tokens": tokens})
    write_metrics(tmp_path / "tensorcraft.prom", ENDED, {}, [run])
    found = samples(tmp_path / "tensorcraft.prom")
    assert [name for name in found if name.startswith("train_")] == [f"train_{many}_per_second"]


def test_a_manifest_without_figures_leaves_the_others(tmp_path):
    path = tmp_path / "tensorcraft.prom"
    write_metrics(path, ENDED, {"Records": {"splits": {"train": {}}}, "Train": {"seconds": 2.0}})
    assert samples(path)["stage_duration_seconds"] == [({"stage": "Train"}, 2)]
    assert "records" not in samples(path)


def test_unknown_metrics_are_left_out(tmp_path):
    path = tmp_path / "tensorcraft.prom"
    write_metrics(path, replace(ENDED, exit_code=3, last_success=None), {})
    assert set(samples(path)) == {"run_exit_code", "run_duration_seconds", "run_end_timestamp_seconds"}
