import numpy as np
import pytest

from pipeline.errors import SettingsError
from pipeline.settings.training import RECIPES, TrainSettings


def setup_module() -> None:
    global find_recipe, keras, training_recipes
    import keras

    from pipeline.models import training_recipes
    from pipeline.models.build import find_recipe


@pytest.mark.parametrize(("how", "factor"), [("none", 1), ("linear", 4), ("sqrt", 2)])
def test_the_learning_rate_grows_with_the_global_batch(how, factor):
    optimizer = _optimizer(training_recipes.BASELINE, global_batch_size=512, scale_learning_rate=how)
    assert float(optimizer.learning_rate) == pytest.approx(1e-3 * factor)


def test_a_learning_rate_grows_from_the_batch_that_it_was_chosen_for():
    muon = training_recipes.MUON
    for batch, factor in ((2_000, 1), (1_000, 0.5)):
        optimizer = _optimizer(muon, global_batch_size=batch, scale_learning_rate="linear")
        assert _peak(optimizer) == pytest.approx(muon.learning_rate * factor, rel=0.01)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_says_its_own_highest_learning_rate(name):
    """What an override is compared with to scale the recipe."""
    training_recipe = RECIPES.load(name)
    assert _peak(_optimizer(training_recipe)) == pytest.approx(training_recipe.learning_rate, rel=0.01)


@pytest.mark.parametrize("name", RECIPES)
def test_an_override_takes_the_place_of_the_recipes_own(name):
    optimizer = _optimizer(find_recipe(name), learning_rate=0.02, weight_decay=0.1)
    assert _peak(optimizer) == pytest.approx(0.02, rel=0.01)
    assert optimizer.weight_decay == 0.1
    assert _optimizer(find_recipe(name), weight_decay=0.0).weight_decay is None


def test_the_rate_of_a_recipe_of_unknown_schedule_is_not_overridden():
    scheduled = training_recipes.Recipe(
        lambda steps, scale: keras.optimizers.SGD(training_recipes.WarmUpLinearDecay(scale, steps, warm_up=0.2))
    )
    with pytest.raises(SettingsError, match=r"\[Train\] learning_rate: .* Recipe\(…, learning_rate="):
        _optimizer(scheduled, learning_rate=0.1)
    constant = training_recipes.Recipe(lambda steps, scale: keras.optimizers.SGD(0.5 * scale))
    assert _peak(_optimizer(constant, learning_rate=0.1)) == pytest.approx(0.1)


def _optimizer(training_recipe, **overrides):
    settings = TrainSettings(**{"global_batch_size": 128, **overrides})
    return training_recipes.make_optimizer(training_recipe, settings, total_steps=100)


def _peak(optimizer, steps=100):
    schedule = optimizer._learning_rate
    if isinstance(schedule, training_recipes.WarmUpLinearDecay):
        return max(float(schedule(step)) for step in range(steps))
    return float(optimizer.learning_rate)


@pytest.mark.parametrize("total_steps", [1, 5, 195])
def test_one_cycle_climbs_and_falls(total_steps):
    schedule = training_recipes.WarmUpLinearDecay(5e-3, total_steps, warm_up=0.2)
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
