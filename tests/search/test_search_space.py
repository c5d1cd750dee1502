"""The text of a search's space."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import SettingsError
from pipeline.settings.search_space import Range, parse_space, train_settings
from pipeline.settings.training import TrainSettings


def test_ranges_and_lists_become_values_of_their_settings():
    space = parse_space(
        "learning_rate=log:1e-4:1e-2, weight_decay=0:0.1, epochs=2:9, augment=[none,flip,'flip, crop:8'],"
        'freeze=["conv_[0-9]", dense],global_batch_size=[64, 128],'
    )
    assert space == {
        "augment": ("none", "flip", "flip, crop:8"),
        "epochs": Range(2, 9),
        "freeze": ("conv_[0-9]", "dense"),
        "global_batch_size": (64, 128),
        "learning_rate": Range(1e-4, 1e-2, is_log=True),
        "weight_decay": Range(0.0, 0.1),
    }
    assert [type(space["epochs"].low), type(space["weight_decay"].low)] == [int, float]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected name=LOW:HIGH"),
        ("learning_rate", "expected name=LOW:HIGH"),
        ("learning_rate=1:2:3", "expected name=LOW:HIGH"),
        ("learning_rate=1e-3:1e-2 weight_decay=0:1", "expected name=LOW:HIGH"),
        ("augment=[flip", "expected name=LOW:HIGH"),
        ("learning_rat=1e-4:1", "Did you mean 'learning_rate'?"),
        ("seed=0:9", "expected settings of [Train] that change the model, got 'seed'"),
        ("test_time_augmentation=[none, flip]", "expected settings of [Train] that change the model"),
        ("epochs=1:2, epochs=3:4", "expected each setting once, got 'epochs'"),
        ("learning_rate=0.1:0.01", "expected a lower and a higher number for learning_rate, got 0.1:0.01"),
        ("weight_decay=log:0:0.1", "expected a lower positive number and a higher number for weight_decay"),
        ("learning_rate=0:0.1", "[Train] learning_rate: expected a number above 0"),
        ("learning_rate=-1:1000", "[Train] learning_rate: expected a number above 0"),
        ("learning_rate=low:high", "[Train] learning_rate: expected a number, got 'low'"),
        ("epochs=auto:4", "expected a lower and a higher number for epochs"),
        ("epochs=0.5:4", "[Train] epochs: expected an integer"),
        ("augment=1:2", "[Train] augment: expected operations among"),
        ("augment=[]", "expected values of augment between commas, got []"),
        ("augment=[flip,,crop]", "expected values of augment between commas"),
        ("augment=[flop]", "Did you mean 'flip'?"),
        ("precision=[float32, float8]", "[Train] precision: expected one of"),
    ],
)
def test_anything_else_is_refused(text, expected):
    with pytest.raises(SettingsError) as refused:
        parse_space(text)
    assert expected in str(refused.value)


@pytest.mark.parametrize("text", ["model=[nope]", "epochs=0:3", "epochs=1.5:3", "augment=[none, 'flip, flop']"])
def test_an_error_about_a_value_names_the_space_and_not_the_flag_of_the_setting(text):
    with pytest.raises(SettingsError, match=r"^--space: \[Train\] \w+: expected ") as refused:
        parse_space(text)
    assert "Change" not in str(refused.value)
    assert "--Train" not in str(refused.value)


_numbers = st.floats(1e-9, 999.0)
_pairs = st.tuples(_numbers, _numbers).filter(lambda pair: pair[0] != pair[1]).map(sorted)
_blanks = st.sampled_from(["", " ", "  "])
_augments = st.lists(st.sampled_from(["none", "flip", "crop:4", "flip, crop:8", "color:0.1"]), min_size=1, unique=True)


@given(
    pair=_pairs, is_log=st.booleans(), augments=_augments, quote=st.sampled_from("'\""), blank=_blanks, value=_numbers
)
def test_a_written_space_is_read_as_it_was_meant(pair, is_log, augments, quote, blank, value):
    low, high = pair
    listed = f",{blank}".join(f"{quote}{augment}{quote}" for augment in augments)
    texts = [f"learning_rate{blank}={blank}{'log:' * is_log}{low}:{high}", f"augment=[{listed}{blank}]{blank}"]
    space = parse_space(f"{blank},".join(texts))
    assert space == {"learning_rate": Range(low, high, is_log), "augment": tuple(augments)}
    rounded = space["learning_rate"].rounded(min(max(value, low), high))
    assert low <= rounded <= high
    for augment in augments:
        # Every point of the space is a valid setting.
        TrainSettings(**train_settings({"learning_rate": rounded, "augment": augment}))


@given(st.text(max_size=40) | st.from_regex(r"\A(learning_rate|augment)=[\[\]'\",:a-z0-9. -]*\Z"))
def test_any_other_text_gives_an_error_for_the_user(text):
    try:
        space = parse_space(text)
    except SettingsError:
        return
    assert space
