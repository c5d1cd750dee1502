"""The key of an example, and the split that follows from keys and labels. Nothing here imports a heavy library."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.records.features import SPLITS
from pipeline.shards.splits import split_of, splits_by_group, splits_by_label, splits_by_position
from pipeline.sources.files import IndexKeys

KEYS = [f"train-{index:09d}" for index in range(5_000)]
shares = st.floats(0, 0.99)


def test_a_key_is_the_split_and_the_index_in_nine_digits():
    assert IndexKeys("train", 1)[0] == "train-000000000"
    assert IndexKeys("test", 10**9)[123_456_789] == "test-123456789"
    assert sorted(set(KEYS)) == KEYS


def test_the_splits_of_known_keys_are_pinned():
    # Records that exist were divided like this.
    found = [split_of(key, test_share=0.2, validation_share=0.25) for key in KEYS[:8]]
    assert found == ["train", "train", "test", "train", "validation", "validation", "test", "train"]


@pytest.mark.parametrize(("test_share", "validation_share"), [(0.2, 0.0), (0.0, 0.1), (0.2, 0.25), (0.0, 0.0)])
def test_each_split_has_its_share(test_share, validation_share):
    found = [split_of(key, test_share=test_share, validation_share=validation_share) for key in KEYS]
    assert found.count("test") / len(KEYS) == pytest.approx(test_share, abs=0.02)
    assert found.count("validation") / len(KEYS) == pytest.approx((1 - test_share) * validation_share, abs=0.02)


@given(index=st.integers(0, 999_999_999), smaller=shares, larger=shares, validation_share=shares)
def test_a_larger_share_keeps_every_example_of_a_smaller_one(index, smaller, larger, validation_share):
    key = f"train-{index:09d}"
    smaller, larger = sorted([smaller, larger])
    if split_of(key, test_share=smaller, validation_share=0) == "test":
        assert split_of(key, test_share=larger, validation_share=validation_share) == "test"
    if split_of(key, test_share=0, validation_share=smaller) == "validation":
        assert split_of(key, test_share=0, validation_share=larger) == "validation"


@given(index=st.integers(0, 999_999_999), test_share=shares, one=shares, other=shares)
def test_the_validation_share_leaves_the_test_split_as_it_is(index, test_share, one, other):
    key = f"train-{index:09d}"
    found = [split_of(key, test_share=test_share, validation_share=share) for share in (one, other)]
    assert (found[0] == "test") == (found[1] == "test")


def test_test_and_validation_are_drawn_independently():
    test = {key for key in KEYS if split_of(key, test_share=0.5, validation_share=0) == "test"}
    validation = {key for key in KEYS if split_of(key, test_share=0, validation_share=0.5) == "validation"}
    assert len(test & validation) / len(KEYS) == pytest.approx(0.25, abs=0.02)


def by_label(labels, **shares):
    """Key → split of examples, each with the label of its position."""
    keys = KEYS[: len(labels)]
    return dict(zip(keys, splits_by_label(keys, labels, **shares), strict=True))


some_labels = st.lists(st.integers(0, 4), max_size=150)


@given(labels=some_labels, test_share=shares, validation_share=shares)
def test_each_label_has_its_share_in_each_split(labels, test_share, validation_share):
    found = by_label(labels, test_share=test_share, validation_share=validation_share)
    counts = Counter(zip(labels, found.values(), strict=True))
    for label, total in Counter(labels).items():
        rest = total
        for split, share in (("test", test_share), ("validation", validation_share)):
            expected = share * rest
            assert abs(counts[label, split] - expected) <= 0.5 or counts[label, split] in (1, rest - 1)
            # The label is in the split if there are two examples. One of them stays for the splits that follow.
            assert (counts[label, split] > 0) == (share > 0 and rest > 1)
            rest -= counts[label, split]
        assert counts[label, "train"] == rest > 0


@given(labels=some_labels, added=st.integers(0, 4), test_share=shares, validation_share=shares)
def test_a_new_example_moves_at_most_two_of_its_label_and_none_of_another(labels, added, test_share, validation_share):
    before, after = (
        by_label(each, test_share=test_share, validation_share=validation_share) for each in (labels, [*labels, added])
    )
    moved = [label for label, key in zip(labels, before, strict=True) if before[key] != after[key]]
    assert moved in ([], [added], [added, added])
    # Without a validation split, one example at most makes room.
    if not validation_share:
        assert len(moved) < 2


@given(labels=some_labels, smaller=shares, larger=shares, validation_share=shares)
def test_a_larger_test_share_of_each_label_keeps_the_examples_of_a_smaller_one(
    labels, smaller, larger, validation_share
):
    smaller, larger = sorted([smaller, larger])
    few, many = (by_label(labels, test_share=share, validation_share=validation_share) for share in (smaller, larger))
    assert {key for key in few if few[key] == "test"} <= {key for key in many if many[key] == "test"}


def test_the_splits_by_label_of_known_keys_are_pinned():
    # Records that exist were divided like this.
    found = [*by_label([0, 0, 0, 0, 0, 1, 1, 1, 2], test_share=0.2, validation_share=0.25).values()]
    assert found[:5] == ["train", "train", "test", "train", "validation"]
    assert found[5:] == ["validation", "test", "train", "train"]


@given(groups=st.lists(st.integers(0, 30).map("patient {}".format), max_size=200), test=shares, validation=shares)
def test_no_group_is_in_two_splits(groups, test, validation):
    found = splits_by_group(groups, test_share=test, validation_share=validation)
    assert len(found) == len(groups)
    splits = dict(zip(groups, found, strict=True))
    assert [splits[group] for group in groups] == found
    counts = Counter(splits.values())
    if len(splits) > 1 and test:
        assert 0 < counts["test"] < len(splits)
        assert abs(counts["test"] - test * len(splits)) <= 0.5 or counts["test"] in (1, len(splits) - 1)


@given(num_examples=st.integers(0, 1_000), test_share=shares, validation_share=shares)
def test_a_text_is_divided_into_regions_with_the_test_split_at_its_end(num_examples, test_share, validation_share):
    found = splits_by_position(num_examples, test_share=test_share, validation_share=validation_share)
    assert len(found) == num_examples
    assert found == sorted(found, key=SPLITS.index)
    assert found.count("test") == int(num_examples * test_share)
    assert found.count("validation") == int((num_examples - found.count("test")) * validation_share)
    assert set(found) <= set(SPLITS)
