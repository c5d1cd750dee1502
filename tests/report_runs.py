"""Runs as training leaves them, written by hand, and their report."""

import json
from pathlib import Path

from pipeline.report import build_report, write_report

NAMES = ("report.json", "report.md", "report.html")

RUN = {
    "dataset": "cifar10",
    "requested_dataset": "cifar10",
    "dataset_verified": True,
    "model": "baseline_cnn",
    "recipe": "onecycle",
    "requested_device": "auto",
    "effective_device": "cpu",
    "device_verified": True,
    "device_name": "AMD EPYC 9B14",
    "num_replicas": 1,
    "global_batch_size": 128,
    "epochs": 2,
    "seed": 0,
    "requested_precision": "auto",
    "precision": "bfloat16",
    "requested_jit_compile": "auto",
    "jit_compile": False,
    "train_seconds": 24.8,
    "first_epoch_seconds": 13.1,
    "examples_per_second": 10012.4,
    "val_accuracy": 0.738,
    "val_loss": 0.764,
    "fingerprint": "a" * 64,
    "finished_at": "2026-03-01T10:00:00+00:00",
    "hostname": "bench",
}
EPOCH = {
    "epoch": 1,
    "loss": 1.5,
    "accuracy": 0.5,
    "val_loss": 1.2,
    "val_accuracy": 0.6,
    "train_seconds": 12.4,
    "evaluation_seconds": 0.5,
    "examples_per_second": 10000.0,
    "learning_rate": 0.001,
}
MISMATCH = {"cause": "no TPU answers", "remedy": "Start on a TPU VM.", "error": "NotFoundError"}
SKIPPED = {
    "status": "skipped",
    "on_mismatch": "skip",
    "mismatch": MISMATCH,
    "effective_device": "none",
    "device_verified": False,
    "device_name": None,
    **dict.fromkeys(("train_seconds", "first_epoch_seconds", "examples_per_second", "val_accuracy", "val_loss")),
}


def write_run(folder: Path, curves: list | None = None, **changes) -> Path:
    """Writes a run's folder: run.json with the changes given, two epochs unless `curves` says otherwise."""
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(RUN | changes), encoding="utf-8")
    rows = [EPOCH, EPOCH | {"epoch": 2, "val_accuracy": 0.738}] if curves is None else curves
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def render(folders, out, current=(RUN["fingerprint"],)):
    write_report(build_report(folders, current=current), out)
    return {name: (out / name).read_text(encoding="utf-8") for name in NAMES}
