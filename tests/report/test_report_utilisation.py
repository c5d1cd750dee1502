"""Model FLOP utilization: operations of the real step, over the seconds it took and what the device can do."""

import pytest
from report_runs import run_of


def setup_module() -> None:
    global time_rows, utilization
    from pipeline.report.data.measures import utilization
    from pipeline.report.sections.runs import time_rows


PROBE = {"matmul_flops_per_second": 80e9, "convolution_flops_per_second": 100e9, "precision": "float32"}
PARTS = dict.fromkeys(
    (
        *("step_alone_seconds", "input_alone_seconds", "input_wait_share", "compilation_seconds", "not_measured"),
        *("startup_seconds", "loading_seconds", "training_seconds", "evaluation_seconds", "checkpoint_seconds"),
        *("saving_seconds", "measuring_seconds", "profiling_seconds"),
    )
)


def run(*, parts=None, **changes):
    about = {
        "schema_version": 11,
        "effective_device": "cpu",
        "device_name": "a processor, 2 cores",
        "num_replicas": 1,
        "precision": "float32",
    }
    times = {**PARTS, "step_flops": 4e9, "step_seconds": 0.1} | (parts or {})
    return run_of(**{**about, "time_breakdown": times, "receipt": {"probe": PROBE}, **changes})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # 4 GFLOP in 0.1 s are 40 GFLOP/s, of the faster of the two that were timed.
        ({}, {"probe": 0.4}),
        ({"num_replicas": 4}, {"probe": 0.4}),
        # These may run on several hosts, and each has a CPU.
        ({"processes": 2}, {}),
        ({"parts": {"step_flops": None}}, {}),
        ({"parts": {"step_seconds": None}}, {}),
        ({"time_breakdown": None}, {}),
        ({"receipt": None}, {}),
        ({"receipt": {"probe": "fast"}}, {}),
        ({"receipt": {"probe": {"convolution_flops_per_second": "1e9"}}}, {}),
    ],
)
def test_on_a_cpu_it_is_of_what_the_probe_reached(changes, expected):
    assert utilization(run(**changes)) == pytest.approx(expected)


def test_on_an_accelerator_the_published_peak_of_its_precision_counts_too_and_its_host_does_not():
    probe = {"matmul_flops_per_second": 200e12, "host_matmul_flops_per_second": 900e12}
    gpu = {"effective_device": "gpu", "device_name": "NVIDIA A100-SXM4-40GB", "precision": "bfloat16"}
    found = utilization(run(parts={"step_flops": 2e13, "step_seconds": 0.5}, receipt={"probe": probe}, **gpu))
    assert found == pytest.approx({"probe": 0.2, "published": 40e12 / 312e12})
    two = utilization(
        run(parts={"step_flops": 2e13, "step_seconds": 0.5}, receipt={"probe": probe}, **gpu | {"num_replicas": 2})
    )
    assert two == pytest.approx({"probe": 0.1, "published": 20e12 / 312e12})
    unknown = utilization(run(receipt={"probe": probe}, **gpu | {"device_name": "a card of 2031"}))
    assert unknown.keys() == {"probe"}


def test_the_report_says_it_of_a_run_and_nothing_where_it_was_not_measured():
    rows = dict(time_rows(run()))
    assert rows["Operations per step"] == "4.00 GFLOP"
    assert rows["Model FLOP utilization"] == "40% of the probe's speed"
    assert "Memory traffic per step" not in rows
    counted = dict(time_rows(run(parts={"step_bytes": 2.5e9})))
    assert counted["Memory traffic per step"] == "2,500 MB"
    assert "Model FLOP utilization" not in dict(time_rows(run(parts={"step_flops": None})))


@pytest.mark.parametrize(
    ("device_name", "peak"),
    [
        ("NVIDIA H200", 989e12),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA L4, NVIDIA L4", 121e12),
        ("NVIDIA L4, NVIDIA T4", None),
        ("NVIDIA A100-SXM4-40GB", 312e12),
        ("NVIDIA A100 80GB PCIe", 312e12),
        ("NVIDIA RTX A1000", None),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40S", None),
        ("TPU v5 lite", 197e12),
        ("TPU v5", 459e12),
        ("TPU v4", 275e12),
        ("TPU v4i", None),
    ],
)
def test_a_published_peak_is_that_of_the_whole_name_and_not_of_a_device_called_alike(device_name, peak):
    found = utilization(run(effective_device="gpu", device_name=device_name, precision="bfloat16"))
    assert found.get("published") == (peak and pytest.approx(4e10 / peak))
