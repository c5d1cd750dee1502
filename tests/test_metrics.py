from pipeline.metrics import append_metrics, read_metrics


def test_rows_come_back_in_order(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [{"epoch": epoch, "loss": 1 / epoch} for epoch in (1, 2, 3)]
    for row in rows:
        append_metrics(path, row)
    assert read_metrics(path) == rows
