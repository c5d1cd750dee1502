import numpy as np
import pytest

from pipeline.networks import recipes


@pytest.mark.parametrize(("how", "factor"), [("none", 1), ("linear", 4), ("sqrt", 2)])
def test_the_learning_rate_grows_with_the_global_batch(how, factor):
    rate = recipes.make_optimizer(
        "baseline", total_steps=10, global_batch_size=512, scale_learning_rate=how
    ).learning_rate
    assert float(rate) == pytest.approx(1e-3 * factor)


@pytest.mark.parametrize("total_steps", [1, 5, 1_950])
def test_one_cycle_climbs_and_falls(total_steps):
    schedule = recipes.WarmUpLinearDecay(5e-3, total_steps, warm_up=0.2)
    rates = np.array([float(schedule(step)) for step in range(total_steps)])
    assert (rates > 0).all()
    assert rates.max() <= 5e-3 + 1e-9
    peak = rates.argmax()
    # Two steps as high as each other where the peak falls between them.
    assert (np.diff(rates[: peak + 1]) > 0).all()
    assert (np.diff(rates[peak:]) <= 0).all()
    assert (np.diff(rates[peak + 1 :]) < 0).all()
    if total_steps > 100:
        assert peak == pytest.approx(0.2 * total_steps, abs=1)
        assert rates[-1] < 5e-3 * 2 / total_steps
