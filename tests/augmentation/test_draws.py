"""The numbers an augmentation draws: of an example, whatever the batch it comes in."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st


def setup_module() -> None:
    global Draws, tf
    import tensorflow as tf

    from pipeline.augmentation import Draws


def draws(places, *, seed=0, epoch=0, operation="flip"):
    return Draws(tf.constant(places, tf.int64), seed=seed, epoch=epoch, operation=operation)


@settings(max_examples=15)
@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=8), st.integers(0, 2**31 - 1), st.integers(0, 1_000))
def test_a_number_belongs_to_seed_epoch_and_example(places, seed, epoch):
    whole = draws(places, seed=seed, epoch=epoch).uniform(0).numpy()
    assert ((whole >= 0) & (whole < 1)).all()
    for place, number in zip(places, whole, strict=True):
        assert draws([place], seed=seed, epoch=epoch).uniform(0).numpy() == [number]


def test_numbers_differ_by_example_epoch_seed_operation_and_draw():
    many = np.arange(1_000)
    found = [
        draws(many).uniform(0),
        draws(many).uniform(1),
        draws(many, epoch=1).uniform(0),
        draws(many, seed=1).uniform(0),
        draws(many, operation="crop").uniform(0),
        draws(many + 1_000).uniform(0),
    ]
    correlation = np.corrcoef(np.stack(found))
    assert np.abs(correlation - np.eye(len(found))).max() < 0.15


def test_numbers_are_spread_evenly():
    counts = np.bincount(draws(np.arange(100_000)).integer(3, -4, 4).numpy() + 4)
    assert len(counts) == 9
    # Chi-squared of 8 degrees: beyond 26 once in 1,000.
    assert ((counts - 100_000 / 9) ** 2 / (100_000 / 9)).sum() < 26
