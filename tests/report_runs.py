"""Runs as training leaves them, written by hand, and their report."""

import html
import json
import re
from pathlib import Path
from unittest import mock

import numpy as np
from PIL import Image

from pipeline.artifacts.manifest import write_manifest
from pipeline.problems.problem import AUGMENTED_NAME, EXAMPLES_NAME, TEST_IMAGES_NAME
from tasks.config_files import PUBLISHED, experiments

PROJECT = Path(__file__).resolve().parent.parent
TEMPLATES = PROJECT / "pipeline" / "report" / "templates"

NAMES = ("report.json", "report.md", "report.html")

RUN = {
    "dataset": "cifar10",
    "requested_dataset": "cifar10",
    "dataset_verified": True,
    "model": "baseline_cnn",
    "training_recipe": "onecycle",
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
    "test_accuracy": 0.738,
    "test_loss": 0.764,
    "fingerprint": "a" * 64,
    "finished_at": "2026-03-01T10:00:00+00:00",
    "hostname": "bench",
}
EPOCH = {
    "epoch": 1,
    "loss": 1.5,
    "accuracy": 0.5,
    "test_loss": 1.2,
    "test_accuracy": 0.6,
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
    **dict.fromkeys(("train_seconds", "first_epoch_seconds", "examples_per_second", "test_accuracy", "test_loss")),
}


def write_run(folder: Path, curves: list | None = None, **changes) -> Path:
    """Writes a run's folder: run.json with the changes given, two epochs unless `curves` says otherwise."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(RUN | changes), encoding="utf-8")
    rows = [EPOCH, EPOCH | {"epoch": 2, "test_accuracy": 0.738}] if curves is None else curves
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def write_origin(folder: Path, *, code: str = "1", keras: str = "3.15.1", **settings) -> Path:
    """Adds a manifest: the run was made from this code, this library and these settings."""
    identity = {
        "settings": settings,
        "upstream": {},
        "code": {"pipeline.models": {"baseline_cnn": code}},
        "packages": {"keras": keras},
    }
    write_manifest(folder, stage="Train", identity=identity, details={})
    return folder


def write_evaluation(folder: Path, labels=("cat", "dog", "ship"), **changes) -> Path:
    """Adds an evaluation: of each label 24 images right and 6 wrong.

    Two mistakes, a correct test image and three examples are shown.
    """
    from pipeline.problems.classification import judge

    count = len(labels)
    predicted = [(label, label) for label in range(count)] * 24
    predicted += [(label, (label + 1) % count) for label in range(count)] * 6
    true, given = (np.array(column) for column in zip(*predicted, strict=True))
    confidence = np.linspace(0.3, 0.99, len(true))
    sheet = Image.fromarray(np.arange(8 * 8 * 8 * 3, dtype=np.uint8).reshape(8, 64, 3))
    for name in (TEST_IMAGES_NAME, EXAMPLES_NAME, AUGMENTED_NAME):
        sheet.save(folder / name)
    facts = {
        "label_names": list(labels),
        "label_counts": {"train": dict.fromkeys(labels, 300), "test": dict.fromkeys(labels, 30)},
        **judge(true, given, confidence, num_labels=count),
        "test_images": [
            {"index": 7, "label": 0, "predicted": count - 1, "confidence": 0.97},
            {"index": 3, "label": count - 1, "predicted": 0, "confidence": 0.9},
            {"index": 4, "label": 1, "predicted": 1, "confidence": 0.34},
        ],
        "examples": [{"index": place, "label": place % count} for place in range(3)],
        "tiles": {"per_row": 8, "height": 8, "width": 8},
    }
    (folder / "evaluation.json").write_text(json.dumps(facts | changes), encoding="utf-8")
    return folder


def write_predictions(folder: Path, wrong, labels=("cat", "dog", "ship"), name="photos/{}.jpg") -> Path:
    """Adds the predictions of the 90 test images of `write_evaluation`, those with these indices wrong."""
    lines = ["key,label,predicted,probability,second,second_probability,label_probability"]
    for index in range(30 * len(labels)):
        label, other = (labels[(index + step) % len(labels)] for step in (0, 1))
        predicted, share = (other, 0.1) if index in wrong else (label, 0.8)
        lines.append(f'"{name.format(index)}","{label}","{predicted}",0.8,"{other}",0.1,{share}')
    (folder / "test_predictions.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def foreign(page: str) -> str:
    """The page without its own script, of which there is one: the file that lies beside the template.

    Data of the script contain no tag.
    """
    page = re.sub('<script type="application/json" id="compare-data">[^<]*</script>', "", page)
    script = f"<script>{(TEMPLATES / 'report.js').read_text(encoding='utf-8')}</script>"
    assert page.count(script) == 1
    return page.replace(script, "")


def run_of(**changes):
    """A run of the report with the changes given, without files."""
    from pipeline.report.data.reading import Run

    return Run.model_validate_json(json.dumps(RUN | changes))


def row_of(run, **changes):
    """The row of a single run with the changes given."""
    from dataclasses import replace

    from pipeline.report.data.scoreboard import scenarios

    return replace(scenarios([run])[0], **changes)


def published() -> list:
    """The figures published elsewhere of all experiments there are."""
    from pipeline.report import read_published

    files = experiments(PUBLISHED).items()
    return [row for name, path in files for row in read_published(path, name)]


def report_of(folders, current=(RUN["fingerprint"],), **how):
    """The report's data, with what is published beside it."""
    from pipeline.report import build_report

    return build_report(folders, current=current, **{"published": published(), **how})


def cells_of(table) -> list[dict[str, str]]:
    """The rows of a table: by the title of a column all text of its cell."""
    columns, rows = table.visible(has_hidden=True)
    return [
        {
            column.title: ", ".join(filter(None, [*cell.lines(), cell.tag]))
            for column, cell in zip(columns, row, strict=True)
        }
        for row in rows
    ]


def scoreboard_of(folders, current=(RUN["fingerprint"],), experiment="cifar10", **how):
    """The rows of an experiment's scoreboard, see `cells_of`."""
    from pipeline.report.sections.scoreboard import scoreboard

    return cells_of(scoreboard(report_of(folders, current, **how), experiment))


def render(folders, out, current=(RUN["fingerprint"],), *, drawn=False, **how):
    """Write a report and return its texts by file name; unless ``drawn``, its drawings are empty.

    matplotlib takes most of the time of a small report.
    """
    from pipeline.report import drawings, write_report

    empty = {} if drawn else {"draw": _empty_drawing}
    with mock.patch.dict(vars(drawings), empty):
        write_report(report_of(folders, current, **how), out)
    return {name: (out / name).read_text(encoding="utf-8") for name in NAMES}


def _empty_drawing(chart):
    from markupsafe import Markup

    from pipeline.report.drawings import Drawing

    label = html.escape(chart.alternative())
    return Drawing(Markup(f'<div class="panels" role="img" aria-label="{label}"><svg></svg></div>'), has_labels=False)
