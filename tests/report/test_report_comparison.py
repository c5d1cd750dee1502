"""Scenarios, the guard on speed-ups, and times by batch: which runs are compared with each other, and which never."""

import itertools
import json
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_runs import EPOCH, RUN, SKIPPED, run_of, write_origin

from pipeline.runs.record import names


def setup_module() -> None:
    global Speedup, Spread, build_report, scenarios_of, field_label
    from pipeline.report import build_report
    from pipeline.report.data.scoreboard import Speedup, field_label
    from pipeline.report.data.scoreboard import scenarios as scenarios_of
    from pipeline.report.formats import Spread


DIGESTS = {"train": "1" * 64, "test": "2" * 64}
CPU = {"content_digests": DIGESTS, "steps_per_epoch": 100, "examples_per_second": 1000.0}
GPU = CPU | {"effective_device": "gpu", "device_name": "H200", "hostname": "other", "examples_per_second": 9000.0}

OTHERWISE = {
    "computation_flags": {"OMP_NUM_THREADS": "1"},
    "experiment": "another",
    "content_digests": DIGESTS | {"test": "3" * 64},
    "model": "resnet",
    "training_recipe": "baseline",
    "epochs": 3,
    "global_batch_size": 256,
    "precision": "float32",
    "scale_learning_rate": "sqrt",
    "replicas": 2,
    "requested_jit_compile": "true",
    "cache": "none",
    "learning_rate": 0.01,
    "fine_tune": "full",
    "weight_decay": 0.1,
    "freeze": "conv_.*",
    "initial_weights_digest": "4" * 64,
    "label_smoothing": 0.0,
    "augment": "flip",
    "class_weight": "balanced",
    "keep": "best",
    "patience": 3,
    "tokens": "bytes",
    "problem": "next_token",
}
COMPARED = names(compared=True)


@pytest.fixture
def scenarios(make_run):
    """Builds the report of runs with these changes and gives its scenarios, in the order of the runs.

    `code` and `keras` go into a run's manifest; there is none where `code` is None.
    """
    number = itertools.count(1)

    def build(*runs):
        folders, order = [], []
        for run in runs:
            n = next(number)
            changes = {"fingerprint": f"{n:064x}", "finished_at": f"2026-03-01T10:00:{n:02d}+00:00"} | run
            origin = {name: changes.pop(name) for name in ("code", "keras") if name in changes}
            folders.append(make_run(f"run{n}", **changes))
            if origin.get("code", "1") is not None:
                write_origin(folders[-1], **origin)
            order.append(changes["fingerprint"])
        rows = build_report(folders, current=[]).scenarios
        return sorted(rows, key=lambda row: min(map(order.index, row.fingerprints)))

    return build


def rows_of(*changes):
    """The scenarios of runs with these changes, from their records alone: without files and without a report."""
    runs = [
        run_of(**change, fingerprint=f"{n:064x}", code="1", made_from=json.dumps(change, default=str))
        for n, change in enumerate(changes, start=1)
    ]
    return scenarios_of(runs)


def test_runs_that_differ_in_their_seed_alone_are_one_row_of_mean_and_standard_deviation(scenarios):
    seconds, accuracies = (10.0, 12.0, 17.0), (0.7, 0.72, 0.77)
    (row,) = scenarios(
        *({"seed": n, "train_seconds": seconds[n], "test_accuracy": accuracies[n]} for n in range(3)),
    )
    assert row.seeds == [0, 1, 2]
    assert row.train_seconds.mean == pytest.approx(13.0)
    assert row.train_seconds.deviation == pytest.approx(math.sqrt(13.0))
    assert row.test_accuracy.deviation == pytest.approx(statistics.stdev(accuracies))


def test_a_single_run_has_no_deviation(scenarios):
    (row,) = scenarios({})
    assert row.train_seconds == Spread(RUN["train_seconds"], None)


@pytest.mark.parametrize(
    "change",
    [
        *({name: value} for name, value in OTHERWISE.items()),
        {"device_name": "Xeon"},
        {"granted_cores": 8},
        {"granted_memory_gib": 64},
        {"code": "2"},
        {"keras": "3.16.0"},
        {"device_verified": False},
        {"requested_device": "cpu"},
        {"num_replicas": 2},
        {"dataset": "synthetic"},
        {"dataset_verified": False},
        {"jit_compile": True},
    ],
    ids=str,
)
def test_runs_that_differ_in_more_than_their_seed_are_never_averaged(scenarios, change):
    assert len(scenarios({}, {"seed": 1} | change)) == 2


def test_two_hosts_of_one_kind_are_one_row_and_labels_of_it(scenarios):
    seconds = {"train_seconds": 10.0}, {"train_seconds": 14.0}
    (row,) = scenarios(seconds[0], {"seed": 1, "hostname": "other"} | seconds[1])
    assert [run.hostname for run in row.runs] == ["bench", "other"]
    assert row.train_seconds.mean == 12.0


def test_a_run_repeated_on_another_host_is_another_time_and_no_other_draw_of_its_accuracy(scenarios):
    again = {"fingerprint": "a" * 64, "hostname": "other", "train_seconds": 30.8}
    (row,) = scenarios({"fingerprint": "a" * 64}, again)
    assert row.train_seconds.mean == pytest.approx((24.8 + 30.8) / 2)
    assert row.test_accuracy == Spread(RUN["test_accuracy"], None)


def test_a_copy_of_a_run_is_no_second_measurement(make_run):
    folders = [make_run("one"), make_run("copy")]
    report = build_report(folders, current=[])
    assert len(report.runs) == 1
    assert report.scenarios[0].train_seconds.deviation is None


def test_a_figure_that_one_seed_lacks_has_no_mean(scenarios):
    (row,) = scenarios({"test_accuracy": 0.7}, {"seed": 1, "test_accuracy": None})
    assert row.test_accuracy == Spread(None, None)
    assert row.train_seconds.mean == RUN["train_seconds"]


@given(st.lists(st.floats() | st.none() | st.integers(-(2**63), 2**63), max_size=4))
def test_figures_of_any_size_have_a_finite_mean_or_none(values):
    for figure in vars(Spread.of(values)).values():
        assert figure is None or math.isfinite(figure)


def test_a_speed_up_is_the_ratio_of_images_per_second_to_the_comparable_row_on_a_cpu(scenarios):
    middle = GPU | {"device_name": "T4", "examples_per_second": 3000.0}
    cpu, gpu, t4 = (row.speedup for row in scenarios(CPU, GPU, middle))
    assert cpu == Speedup(None, "baseline")
    assert gpu.ratio == pytest.approx(9.0)
    assert t4.ratio == pytest.approx(3.0)
    assert gpu.words == "of cpu on bench (00000000)"


def test_two_hosts_of_one_kind_have_no_speed_up(scenarios):
    (row,) = scenarios(CPU, CPU | {"hostname": "other", "examples_per_second": 2000.0})
    assert row.speedup.words == "no other hardware to compare with"


@pytest.mark.parametrize("fact", [{"granted_cores": 2}, {"granted_memory_gib": 16}, {"device_name": None}], ids=str)
def test_hardware_that_is_not_known_is_no_other_hardware(scenarios, fact):
    there = CPU | {"hostname": "other", "examples_per_second": 2000.0}
    for row in scenarios(CPU, there | fact):
        assert row.speedup == Speedup(None, "no other hardware to compare with")


def test_cores_and_memory_granted_are_hardware(scenarios):
    small = CPU | {"granted_cores": 2, "granted_memory_gib": 8}
    large = CPU | {"granted_cores": 8, "granted_memory_gib": 8, "examples_per_second": 3500.0}
    _, newest = scenarios(large, small)
    assert newest.speedup.words == "baseline"
    assert scenarios(large, small)[0].speedup.ratio == pytest.approx(3.5)


@pytest.mark.parametrize("old", [{"code": "0"}, {"keras": "3.14.0"}, {"code": None}], ids=str)
def test_a_slower_row_of_old_code_is_no_baseline(scenarios, old):
    slowest = CPU | old | {"examples_per_second": 429.0}
    *_, gpu = scenarios(slowest, CPU | {"examples_per_second": 1000.0}, GPU | {"examples_per_second": 10_000.0})
    assert gpu.speedup.ratio == pytest.approx(10.0)


def test_of_several_rows_on_a_cpu_the_newest_is_the_baseline(scenarios):
    slow = CPU | {"requested_device": "cpu", "examples_per_second": 500.0}
    disturbed, newest, gpu = (row.speedup for row in scenarios(slow, CPU, GPU))
    assert disturbed.words == "same hardware as the baseline"
    assert newest.words == "baseline"
    assert gpu.ratio == pytest.approx(9.0)


def test_without_a_cpu_the_slowest_is_the_baseline(scenarios):
    t4, h200 = (row.speedup for row in scenarios(GPU | {"device_name": "T4", "examples_per_second": 3000.0}, GPU))
    assert t4.words == "baseline"
    assert h200.ratio == pytest.approx(3.0)


def test_code_that_differs_or_is_not_known_is_named_where_it_forbids_a_speed_up(scenarios):
    for other in ("2", None):
        for row in scenarios(CPU, GPU | {"code": other}):
            assert row.speedup.words.endswith(" in code or library versions")


def test_a_devices_own_libraries_are_no_library_versions(scenarios):
    cuda = {"receipt": {"versions": {"built_for_cuda": "12.5"}}}
    _, gpu = scenarios(CPU, GPU | cuda)
    assert gpu.speedup.ratio == pytest.approx(9.0)


def test_the_cell_names_the_one_or_two_things_that_forbid_a_speed_up():
    for differing in (*itertools.combinations(COMPARED, 1), *itertools.combinations(COMPARED, 2)):
        words = ", ".join(field_label(name) for name in COMPARED if name in differing)
        cpu, gpu = rows_of(CPU, GPU | {name: OTHERWISE[name] for name in differing})
        assert cpu.speedup.ratio is gpu.speedup.ratio is None
        assert cpu.speedup.words == f"differs from gpu on other (00000000) in {words}"
        assert gpu.speedup.words == f"differs from cpu on bench (00000000) in {words}"


def test_content_that_is_not_known_is_not_the_same(scenarios):
    for row in scenarios(CPU | {"content_digests": None}, GPU | {"content_digests": None}):
        assert row.speedup.words.endswith(" in dataset content")


UNFIT = [
    ({"dataset": "synthetic", "dataset_verified": False}, "placeholder data"),
    ({"device_verified": False}, "device not verified"),
    ({"requested_device": "tpu"}, "fallback: not the requested device"),
    ({"mismatch": {"cause": "a", "remedy": "b", "error": "c"}}, "fallback: not the requested device"),
    (SKIPPED, "skipped"),
    ({"examples_per_second": None}, "no throughput was measured"),
    ({"examples_per_second": 0}, "no throughput was measured"),
]


@pytest.mark.parametrize(("change", "words"), UNFIT)
@pytest.mark.parametrize(("unfit", "fit"), [(CPU, GPU), (GPU, CPU)], ids=["slower", "faster"])
def test_a_row_that_shows_nothing_is_no_baseline_and_has_no_speed_up(scenarios, unfit, fit, change, words):
    one, other = scenarios(unfit | change, fit)
    assert one.speedup == Speedup(None, words)
    assert other.speedup == Speedup(None, "no other hardware to compare with")


def test_rows_on_the_baselines_own_hardware_have_no_speed_up(scenarios):
    fast, slow, gpu = scenarios(CPU | {"jit_compile": True, "examples_per_second": 1500.0}, CPU, GPU)
    assert slow.speedup.words == "baseline"
    assert fast.speedup.words == "same hardware as the baseline"
    assert gpu.speedup.ratio == pytest.approx(9.0)


def epochs(*seconds):
    return [EPOCH | {"epoch": n, "train_seconds": value} for n, value in enumerate(seconds, start=1)]


def test_times_of_an_epoch_leave_the_compiling_epoch_out_and_average_seeds(scenarios):
    (row,) = scenarios(
        CPU | {"epochs": 3, "curves": epochs(90.0, 10.0, 12.0)},
        CPU | {"epochs": 3, "curves": epochs(99.0, 13.0, 13.0), "seed": 1},
    )
    assert row.epoch_seconds.mean == pytest.approx(12.0)
    assert row.epoch_seconds.deviation == pytest.approx(statistics.stdev([11.0, 13.0]))


def test_the_epoch_after_a_restart_compiled_too(scenarios):
    (row,) = scenarios(CPU | {"curves": epochs(90.0, 10.0, 80.0, 12.0), "epochs_restored": 2})
    assert row.epoch_seconds.mean == pytest.approx(11.0)


def test_a_run_of_one_epoch_has_no_time_without_compilation(scenarios):
    (row,) = scenarios(CPU | {"curves": epochs(90.0)})
    assert row.epoch_seconds.mean is None
