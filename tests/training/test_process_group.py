"""Which of several processes this is, by the settings or by what started it."""

import pytest

from pipeline.errors import SettingsError
from pipeline.hardware.placement import choose_backend
from pipeline.settings.training import TrainSettings
from pipeline.training.process_group import ProcessGroup, process_group


def of(environment=None, **settings):
    return process_group(TrainSettings(**{"processes": 4, "global_batch_size": 128, **settings}), environment or {})


def test_one_process_needs_no_address_and_is_the_chief():
    alone = process_group(TrainSettings(), {"SLURM_PROCID": "3"})
    assert (alone, alone.is_chief) == (ProcessGroup(1, 0), True)


def test_settings_count_before_the_environment():
    found = of({"SLURM_PROCID": "3", "JAX_COORDINATOR_ADDRESS": "b:2"}, process_id=1, coordinator_address="a:1")
    assert (found, found.is_chief) == (ProcessGroup(4, 1, "a", 1), False)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (
            {"SLURM_PROCID": "2", "SLURM_STEP_NODELIST": "node[03-07,12],login", "SLURM_JOB_ID": "4001"},
            ProcessGroup(4, 2, "node03", 65441),
        ),
        (
            {"SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "alpha,beta", "SLURM_JOB_ID": "1332"},
            ProcessGroup(4, 0, "alpha", 62772),
        ),
        ({"TPU_WORKER_ID": "3", "TPU_WORKER_HOSTNAMES": "t-0,t-1,t-2,t-3"}, ProcessGroup(4, 3, "t-0", 8476)),
        ({"JOB_COMPLETION_INDEX": "1", "JAX_COORDINATOR_ADDRESS": "job-0.job:9"}, ProcessGroup(4, 1, "job-0.job", 9)),
    ],
)
def test_slurm_cloud_tpu_and_an_indexed_job_say_it_by_themselves(environment, expected):
    assert of(environment) == expected


def test_an_address_of_ipv6_is_in_brackets():
    assert of(process_id=0, coordinator_address="[::1]:9000") == ProcessGroup(4, 0, "::1", 9000)


@pytest.mark.parametrize(
    ("settings", "environment", "named"),
    [
        ({}, {"JAX_COORDINATOR_ADDRESS": "a:1"}, "[Train] process_id: expected 0 to 3"),
        ({}, {"SLURM_PROCID": "4", "JAX_COORDINATOR_ADDRESS": "a:1"}, "[Train] process_id"),
        ({}, {"SLURM_PROCID": "x", "JAX_COORDINATOR_ADDRESS": "a:1"}, "[Train] process_id"),
        ({"process_id": 0}, {}, "[Train] coordinator_address: expected host:port of process 0"),
        ({"process_id": 0}, {"JAX_COORDINATOR_ADDRESS": "a"}, "[Train] coordinator_address"),
        ({"process_id": 4}, {}, "[Train] process_id: expected an integer from -1 to 3"),
        ({"coordinator_address": "a:65536"}, {}, "[Train] coordinator_address"),
        ({"coordinator_address": "a"}, {}, "[Train] coordinator_address"),
        ({"global_batch_size": 126}, {}, "a multiple of the 4 replicas"),
        ({"global_batch_size": 132, "replicas": 2}, {}, "a multiple of the 8 replicas"),
        ({"join_timeout_seconds": 0}, {}, "[Train] join_timeout_seconds"),
        ({"processes": 0}, {}, "[Train] processes"),
    ],
)
def test_invalid_process_groups_are_refused_with_the_setting(settings, environment, named):
    with pytest.raises(SettingsError) as refused:
        of(environment, **settings)
    assert named in str(refused.value)


def test_tensorflow_is_refused_with_its_reason_and_auto_takes_jax():
    with pytest.raises(SettingsError, match=r"\[Train\] backend.*MultiWorkerMirroredStrategy.*20585"):
        TrainSettings(processes=2, backend="tensorflow")
    assert choose_backend(TrainSettings(processes=2, device="cpu")) == "jax"
