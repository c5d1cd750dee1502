"""The data of the runs on the page: their splits, size and warnings, and the files that were left out."""

import re

import pytest
from report_runs import render, report_of, write_evaluation


def setup_module() -> None:
    global records
    from pipeline.report.sections.records import records


def stored(encoding, total_bytes, **changes) -> dict:
    return {
        "encoding": encoding, "image_size": 192, "resize": "crop", "num_examples": 1_000, "total_bytes": total_bytes,
    } | changes  # fmt: skip


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
            {"by": "label", "test_share": 0.2, "validation_share": 0.0},
            "A hash of each key, within each label and independent of the seed, assigned about 20% of the train split "
            "of the source to the test split.",
        ),
        (
            {"by": "group", "test_share": 0.2, "validation_share": 0.0},
            "A hash of each group, independent of the seed, assigned the groups of about 20% of the train split of the "
            "source to the test split.",
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
    reduced = {"smallest_side": 143, "median_side": 240, "largest_side": 442, "store_side": 221, "store_quality": 92}
    folder = make_run(records=stored("jpeg", 20_000_000, **reduced), input_shape=[192, 192, 3])
    write_evaluation(folder, data_warnings=[["Few <b>", "Long."], ["Unequal labels", "Longer."]])
    section = render([folder], tmp_path / "out")["report.html"].partition('<h2 id="records">Data</h2>')[2]
    for part in (
        "<p><b>Few &lt;b&gt;</b>: Long.</p>",
        "<p><b>Unequal labels</b>: Longer.</p>",
        "<dt>Stored images</dt><dd>192×192×3, jpeg, crop, from shorter sides of 143 to 442 pixels, median 240, "
        "much larger ones reduced to a shorter side of 221 pixels, quality 92</dd>",
        "<dt>Size on disk</dt><dd>20.0 MB, 20,000 bytes per image</dd>",
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
    section = render([folder], tmp_path / "out")["report.html"].partition("<h3>Test images of each label</h3>")[2]
    earlier = render([write_evaluation(make_run("earlier"))], tmp_path / "earlier")["report.html"]
    assert "<h3>Test images of each label</h3>" in earlier
    found = re.findall('<h4>(.*)</h4>|<li title="(.*)"><img src=".*" alt="(.*)">', section)
    names = ["cat: cats/&lt;1&gt;.png", "cat: cats/2.png", "ship: ships/3.png"]
    first, second, third = (("", name, name) for name in names)
    assert found == [("cat", "", ""), first, second, ("ship", "", ""), third]
