"""What changed since the last run: settings, data and code, in the head."""

import pytest
from report_runs import report_of, write_evaluation, write_origin


def setup_module() -> None:
    global curves, findings, history
    from pipeline.report.sections.charts import curves, history
    from pipeline.report.sections.summary import findings


LABELS = ("cat", "dog", "ship")
BEFORE, NOW = {"train": "1" * 64, "test": "2" * 64}, {"train": "3" * 64, "test": "4" * 64}
SHAPE = {"input_shape": (64, 64, 3)}


@pytest.fixture
def run(make_run):
    """A function that returns the folder of the n-th run, with these numbers of examples per label."""

    def build(number, *, digests=BEFORE, train=58, test=12, code="1", **changes):
        name = f"{number:x}" * 64
        facts = {"fingerprint": name, "finished_at": f"2026-03-0{number}T10:00:00+00:00", "content_digests": digests}
        folder = make_run(f"run{number}", **SHAPE | facts | {"test_examples": 3 * test} | changes)
        counts = {"train": dict.fromkeys(LABELS, train), "test": dict.fromkeys(LABELS, test)}
        identity = {"digests": digests, **{name: value for name, value in changes.items() if name != "seed"}}
        return write_origin(write_evaluation(folder, LABELS, label_counts=counts), code=code, **identity)

    return build


def since(folders, *current) -> list[str]:
    report = report_of(folders, [f"{number:x}" * 64 for number in current])
    return [text for text in findings(report) if text.startswith("Since the last run")]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "no recorded setting, data or code changed"),
        ({"epochs": 5}, "epochs (2 → 5) changed"),
        ({"epochs": 5, "global_batch_size": 64}, "batch (128 → 64) and epochs (2 → 5) changed"),
        ({"code": "2"}, "the code or the versions of libraries changed"),
        (
            {"digests": NOW, "train": 66, "test": 14, "code": "2"},
            "the data (36 → 42 test images, 174 → 198 train images) and the code or the versions of libraries changed",
        ),
        (
            {"digests": NOW},
            "the data (other test images (36 as before), other train images (174 as before)) changed",
        ),
        ({"digests": BEFORE | {"train": "5" * 64}, "train": 59}, "the data (174 → 177 train images) changed"),
        # The same photographs in another size have other digests.
        ({"digests": NOW, "input_shape": (96, 96, 3)}, "input shape (64×64×3 → 96×96×3) changed"),
    ],
)
def test_the_head_tells_what_changed_since_the_last_run(run, changes, expected):
    folders = [run(1), run(2, **{"test_time_augmentation": "none", **changes})]
    assert since(folders, 2) == [f"Since the last run (2026-03-01 10:00 UTC), {expected}."]


def test_a_first_run_has_no_last_one_and_another_experiment_is_none(run):
    first, second, other = run(1), run(2), run(3, experiment="other")
    assert since([first, second], 1) == []
    assert since([first, other], 3) == []


def test_another_seed_of_the_last_command_is_only_another_seed(run):
    folders = [run(1), run(2, seed=1)]
    assert since(folders, 2) == ["Since the last run (2026-03-01 10:00 UTC), only the seed changed."]


def test_seeds_that_were_requested_together_are_compared_with_the_run_before_all_of_them(run):
    folders = [run(1, epochs=1), run(2), run(3, seed=1), run(4, seed=2)]
    assert since(folders, 2, 3, 4) == [
        "Since the last run (2026-03-01 10:00 UTC), epochs (1 → 2) and seed (0 → 0, 1, 2) changed."
    ]


def test_curves_and_groups_of_the_history_that_only_the_data_tell_apart_have_names_of_their_own(run):
    more = {"digests": NOW, "train": 66, "test": 14}
    report = report_of([run(1), run(2, seed=1), run(3, **more), run(4, seed=1, **more)], ["3" * 64, "4" * 64])
    (section,) = curves(report)
    assert [name for name, _ in section.blocks[0].legend] == [
        "seed 1", "seed 0", "seed 1, earlier data", "seed 0, earlier data",
    ]  # fmt: skip
    (section,) = history(report)
    names = [name for name, _ in section.blocks[-1].legend]
    assert names[1] == f"{names[0]}, earlier data until 2026-03-02 10:00 UTC"
