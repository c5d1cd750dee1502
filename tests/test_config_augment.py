import pytest

from pipeline.errors import SettingsError
from pipeline.settings.training import TrainSettings, parse_augment, spelled


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        (" ", ()),
        ("flip", (("flip", None),)),
        ("crop:2,flip", (("crop", 2), ("flip", None))),
        ("flip, crop  cutout:9", (("flip", None), ("crop", 4), ("cutout", 9))),
        ("mixup,color:0.5", (("mixup", 0.2), ("color", 0.5))),
    ],
)
def test_operations_are_read_with_their_numbers(text, expected):
    assert parse_augment(text) == expected


def test_every_spelling_of_the_same_operations_is_one():
    assert {spelled(text) for text in ("flip,crop", "flip crop:4", " flip ,  crop:04,")} == {"flip, crop:4"}
    assert spelled("") == ""
    assert spelled(spelled("translate,mixup:1")) == "translate:0.1, mixup:1"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("flipp", ["operations among flip, alternating_flip, crop", "'flipp'", "Did you mean 'flip'"]),
        ("flip flip", ["each operation once, not flip again"]),
        ("flip:1", ["flip without a number"]),
        ("crop:0", ["an integer from 1 to 512 after crop:"]),
        ("crop:1.5", ["an integer from 1 to 512 after crop:"]),
        ("crop:", ["an integer from 1"]),
        ("color:nan", ["a number from 0.01 to 0.9 after color:"]),
        ("mixup:11", ["a number from 0.01 to 10 after mixup:"]),
    ],
)
def test_an_unknown_operation_is_refused_by_name(text, names):
    with pytest.raises(SettingsError) as refusal:
        TrainSettings(augment=text)
    for name in ["[Train] augment", "--Train-augment", *names]:
        assert name in str(refusal.value)
