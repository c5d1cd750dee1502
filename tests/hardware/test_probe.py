"""The probe of a device's speed: other work on a shared machine only ever slows a computation down."""

import itertools
from types import SimpleNamespace

import pytest

from pipeline.hardware import receipt


def runtime(operations=receipt.OPERATIONS):
    """A runtime whose computations take no time."""
    return SimpleNamespace(computations=lambda *_: {name: lambda: None for name in operations})


def test_the_speed_is_that_of_the_fastest_turn(monkeypatch):
    turns = itertools.cycle([2.0, 1.0, 4.0])
    monkeypatch.setattr(receipt, "_seconds", lambda compute: next(turns))
    monkeypatch.setattr(receipt, "OPERATIONS", ("convolution",))
    measured = receipt.measure(runtime(("convolution",)), "cpu", "float32")
    assert measured["convolution_flops_per_second"] == receipt._CONVOLUTION_FLOP


def test_an_accelerator_is_compared_with_its_host_turn_by_turn(monkeypatch):
    # The host is as fast as the device in every turn, although both get slower.
    load = itertools.chain.from_iterable([seconds, seconds] for seconds in itertools.count(1.0))
    monkeypatch.setattr(receipt, "_seconds", lambda compute: next(load))
    measured = receipt.measure(runtime(), "gpu", "float32")
    assert measured["matmul_times_host"] == pytest.approx(1)
    assert measured["convolution_times_host"] == pytest.approx(1)
