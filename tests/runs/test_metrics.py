from report_runs import EPOCH

from pipeline.runs.metrics import append_metrics, read_metrics


def test_rows_come_back_by_epoch_and_never_as_nan(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for epoch, loss in ((1, 1.5), (2, float("nan")), (3, float("inf"))):
        append_metrics(path, EPOCH | {"epoch": epoch, "loss": loss})
    assert [(row["epoch"], row["loss"]) for row in read_metrics(path)] == [(1, 1.5), (2, None), (3, None)]
    assert "NaN" not in path.read_text()
    assert "validation" not in path.read_text(), "what was not measured has no place in a row"
