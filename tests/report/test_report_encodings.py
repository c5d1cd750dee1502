"""What the records cost, and what was left out of them, on the page."""

import pytest
from report_runs import cells_of, render, report_of


def setup_module() -> None:
    global cost_table
    from pipeline.report.sections.records import cost_table


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
