"""What the records cost, and what was left out of them, on the page."""

import re

import pytest
from report_runs import cells_of, render, report_of, write_evaluation


def setup_module() -> None:
    global cost_table, records
    from pipeline.report.sections.records import cost_table, records


STEP = {
    "step_seconds": 0.1, "step_alone_seconds": 0.09, "input_alone_seconds": 0.02, "input_wait_share": 0.1,
    "compilation_seconds": 1.0, "evaluation_seconds": 1.0, "checkpoint_seconds": 0.1,
}  # fmt: skip


def stored(encoding, total_bytes, **changes) -> dict:
    return {
        "encoding": encoding, "image_size": 192, "resize": "crop", "num_examples": 1_000, "total_bytes": total_bytes,
    } | changes  # fmt: skip


@pytest.fixture
def two_runs(make_run):
    """The same photographs stored raw and as JPEGs, trained on in batches of 128."""
    return [
        make_run(
            encoding, fingerprint=letter * 64, dataset="roses", requested_dataset="roses",
            records=stored(encoding, size),
            records_fingerprint=letter, time_breakdown=STEP | {"input_alone_seconds": seconds}, input_in_memory=False,
        )
        for letter, encoding, size, seconds in (("a", "raw", 110_592_000, 0.02), ("b", "jpeg", 20_000_000, 0.2))
    ]  # fmt: skip


def test_each_encoding_has_its_bytes_and_its_speed(two_runs, tmp_path):
    rows = [[*row.values()] for row in cells_of(cost_table(report_of(two_runs, current=["b" * 64])))]
    assert [row[1:] for row in rows] == [["110.6", "110,592", "6,400", "10%"], ["20.0", "20,000", "640", "10%"]]
    names = [f"roses, {encoding}, 192 px, crop, read from disk" for encoding in ("raw", "jpeg")]
    assert [row[0].startswith(name) for row, name in zip(rows, names, strict=True)] == [True, True]
    assert "110,592" in render(two_runs, tmp_path / "out", current=["b" * 64])["report.html"]


def test_other_datasets_and_records_of_before_are_left_out(two_runs, make_run, tmp_path):
    other = make_run("other", fingerprint="c" * 64)
    assert "Cost of the records" not in render([*two_runs, other], tmp_path / "out", current=["c" * 64])["report.html"]


def test_what_was_not_measured_has_no_figure(make_run):
    (row,) = cells_of(cost_table(report_of([make_run(records=stored("png", 5_000_000, image_size=0))])))
    assert row.pop("records").startswith("CIFAR-10, png, original size, ")
    assert [*row.values()] == ["5.0", "5,000"]


def test_files_that_were_left_out_are_counted_by_reason(make_run, tmp_path):
    run = make_run(records=stored("png", 5_000, skipped={"empty": 2, "<damaged>": 1}))
    page = render([run], tmp_path / "out", current=["a" * 64])["report.html"]
    assert "3 files of the source cannot be used (empty: 2; &lt;damaged&gt;: 1)." in page


def paragraph(folder) -> str:
    """The first paragraph of the section about the data."""
    (section,) = records(report_of([folder]))
    return section.blocks[0].text


@pytest.mark.parametrize(
    ("division", "sentence"),
    [
        ({"test_share": 0.0, "validation_share": 0.0}, "The splits are those of the source."),
        (
            {"test_share": 0.2, "validation_share": 0.125},
            "A hash of each key, independent of the seed, assigned about 20% of the train split of the source to the "
            "test split and about 12.5% of the rest to the validation split.",
        ),
        (
            {"by": "position", "test_share": 0.0, "validation_share": 0.1},
            "The position in the source assigned the last 10% of the train split of the source to the validation "
            "split.",
        ),
    ],
)
def test_the_data_are_described_in_plain_sentences(make_run, division, sentence):
    run = write_evaluation(make_run(division={"by": "key"} | division))
    data = "The run used cifar10 (verified) with 900 train and 90 test images of 3 labels."
    assert paragraph(run) == f"{data} The content equals the original. {sentence}"


def test_a_run_of_before_does_not_state_how_its_splits_were_made(make_run):
    run = write_evaluation(make_run(dataset="roses", requested_dataset="roses", dataset_verified=False))
    end = "of 3 labels. Own data, no reference checksum."
    assert paragraph(run).endswith(end)


def test_size_and_form_of_the_images_and_warnings_are_beside_the_examples(make_run, tmp_path):
    reduced = {"store_side": 221, "store_quality": 92}
    folder = make_run(records=stored("jpeg", 20_000_000, smallest_side=143, **reduced), input_shape=[192, 192, 3])
    write_evaluation(folder, data_warnings=[["Few <b>", "Long."], ["Unequal labels", "Longer."]])
    section = render([folder], tmp_path / "out")["report.html"].partition('<h2 id="records">Data</h2>')[2]
    for part in (
        '<p class="finding">Few &lt;b&gt;. Unequal labels.</p>',
        "<dt>Stored images</dt><dd>192×192×3, jpeg, crop, from at least 143 pixels per side, "
        "shorter side at most 221 pixels, JPEG quality 92</dd>",
        "<dt>Size on disk</dt><dd>20.0 MB, 20,000 bytes per image</dd>",
        "<summary>Cost of the records</summary>",
        '<th scope="row">cat</th><td data-label="train" class="number">300</td>',
    ):
        assert part in section


def test_the_examples_of_each_label_are_below_it_with_their_names(make_run, tmp_path):
    examples = [
        {"index": 4, "label": 0, "name": "cats/<1>.png"},
        {"index": 2, "label": 0, "name": "cats/2.png"},
        {"index": 7, "label": 2, "name": "ships/3.png"},
    ]
    folder = write_evaluation(make_run(), examples=examples)
    section = render([folder], tmp_path / "out")["report.html"].partition("<h3>Random test images of each label</h3>")[
        2
    ]
    earlier = render([write_evaluation(make_run("earlier"))], tmp_path / "earlier")["report.html"]
    assert "<h3>Test images of each label</h3>" in earlier
    found = re.findall('<h4>(.*)</h4>|<li title="(.*)"><img src=".*" alt="(.*)">', section)
    names = ["cat: cats/&lt;1&gt;.png", "cat: cats/2.png", "ship: ships/3.png"]
    first, second, third = (("", name, name) for name in names)
    assert found == [("cat", "", ""), first, second, ("ship", "", ""), third]
