"""Text that a model writes: the lower the temperature, the more often it draws the most probable token."""

from types import SimpleNamespace

import numpy as np

from pipeline.records.vocabulary import Vocabulary


def setup_module() -> None:
    global text_evaluation
    from pipeline.problems.next_token import evaluation as text_evaluation


def test_a_lower_temperature_draws_the_most_probable_token_more_often(monkeypatch):
    probabilities = np.tile([0.5, 0.3, 0.2], (len(text_evaluation.TEMPERATURES), 1))
    monkeypatch.setattr(text_evaluation, "_by_tokens", lambda *_: lambda tokens: probabilities)
    texts = text_evaluation.write_text(
        SimpleNamespace(loss=None),
        Vocabulary.of(["abc"]),
        "model",
        np.zeros(1, np.uint8),
        length=4,
        seed=0,
        tokens=2_000,
    )
    share = {one["temperature"]: one["text"].count("a") / 2_000 for one in texts}
    for temperature, found in share.items():
        powers = np.array([0.5, 0.3, 0.2]) ** (1 / temperature)
        assert abs(found - powers[0] / powers.sum()) < 0.05
    assert sorted(share, key=share.get, reverse=True) == sorted(share)
