"""Throughput: which epochs count, by tables; that training and the report go by it is tested with them."""

import pytest

from pipeline.runs.metrics import compilation_seconds, compiling_epochs, epoch_seconds, examples_per_second


def rows(*seconds):
    return [{"epoch": epoch, "train_seconds": value} for epoch, value in enumerate(seconds, start=1)]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"epochs_restored": 0}, {1}),
        # Made before records had segments.
        ({"epochs_restored": 3}, {1, 4}),
        ({"epochs_restored": 3, "segments": [{"first_epoch": 1}, {"first_epoch": 2}, {"first_epoch": 4}]}, {1, 2, 4}),
    ],
)
def test_the_first_epoch_of_each_process_compiled(record, expected):
    assert compiling_epochs(record) == expected


@pytest.mark.parametrize(
    ("seconds", "compiling", "mean", "rate"),
    [
        ((9.0, 4.0, 6.0), {1}, 5.0, 20.0),
        # Resumed after the second epoch: the third compiled too.
        ((9.0, 5.0, 11.0, 5.0), {1, 3}, 5.0, 20.0),
        # Each epoch compiled: they are all there is to tell a rate by, and no epoch is like those to come.
        ((10.0,), {1}, None, 10.0),
        ((12.0, 8.0), {1, 2}, None, 10.0),
    ],
)
def test_epochs_that_compiled_are_left_out_where_there_are_others(seconds, compiling, mean, rate):
    assert epoch_seconds(rows(*seconds), compiling) == mean
    assert examples_per_second(rows(*seconds), compiling, examples_per_epoch=100) == rate


@pytest.mark.parametrize("seconds", [(1.0, None), (1.0, float("inf")), (1.0, float("nan")), (1.0, 1e308, 1e308)])
def test_a_mean_is_not_made_of_what_is_unknown(seconds):
    assert epoch_seconds(rows(*seconds), {1}) is None


@pytest.mark.parametrize(
    ("seconds", "compiling", "expected"),
    [
        ((9.0, 6.0, 7.0, 8.0), {1}, 2.0),
        ((9.0, 7.0, 10.0, 7.0), {1, 3}, 5.0),
        # Lost in noise: that is not none at all.
        ((6.0, 7.0), {1}, None),
        ((6.0,), {1}, None),
    ],
)
def test_compilation_is_what_its_epochs_took_longer(seconds, compiling, expected):
    assert compilation_seconds(rows(*seconds), compiling) == expected
