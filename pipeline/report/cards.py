"""Cards of the model and of the records, as Markdown with the front matter of the Hugging Face Hub.

The front matter is JSON, which is YAML too: no text of a run can end a string in it.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from pipeline.artefacts import layout
from pipeline.problems.units import IMAGE_CLASSIFICATION, NEXT_TOKEN, units_of_run
from pipeline.report.formats import Run, data_verified, dataset_name, number, percent, plain, plural
from pipeline.report.report import Report, finite
from pipeline.report.sections.evaluation import class_rows, confusion_rows, is_text, text_rows
from pipeline.runs.record import FINISHED, is_stand_in

# The Hub's own steps: below so many examples, so called.
_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)
_LARGEST = "n>10M"
_MOST_CONFUSIONS = 5

# What [Records] resize did to images of another size.
_RESIZED = {
    "crop": "cut to their middle square and resized to it",
    "pad": "resized so that their longer side fits and padded with black",
    "stretch": "stretched to it",
}


# Names of the problems on the Hub.
_TASKS = {IMAGE_CLASSIFICATION: "image-classification", NEXT_TOKEN: "text-generation"}


def cards(report: Report, render: Callable[[str, dict[str, Any]], str]) -> dict[str, str]:
    """The cards "model" and "dataset" of the first requested run that finished. ``render`` renders a template."""
    run = next((run for run in report.requested() if run["status"] == FINISHED), None)
    # Always written: a card of an earlier report must not stay.
    found = dict.fromkeys(("model", "dataset"), "No requested run has what this card describes.\n")
    if run:
        facts = card_facts(run, report)
        found["model"] = _model_front_matter(finite(run)) + render("model-card.md.j2", facts)
    if run and run["evaluation"]:
        found["dataset"] = _dataset_front_matter(run) + render("dataset-card.md.j2", facts)
    return found


def _model_front_matter(run: Run) -> str:
    """The model card's data, with the result as the Hub lists it."""
    dataset, task = plain(run["dataset"]), _TASKS.get(run["problem"], "other")
    result = {
        "task": {"type": task},
        "dataset": {"type": dataset, "name": dataset_name(run["dataset"]), "split": "test"},
        "metrics": [{"type": "accuracy", "value": run["val_accuracy"], "verified": False}],
    }
    return _front_matter(
        {
            "library_name": "keras",
            "pipeline_tag": task,
            "tags": [task, "keras", plain(run["model"]), plain(run["recipe"])],
            "datasets": [] if is_stand_in(run) else [dataset],
            "metrics": ["accuracy"],
            "model-index": [{"name": plain(run["model"]), "results": [result]}],
        }
    )


def _dataset_front_matter(run: Run) -> str:
    """The dataset card's data: features, splits and size."""
    facts, task = run["evaluation"], _TASKS.get(run["problem"], "other")
    counts = {plain(split): count for split, count in _counts(facts).items()}
    total = sum(counts.values())
    return _front_matter(
        {
            "pretty_name": dataset_name(run["dataset"]),
            "task_categories": [task],
            "size_categories": [next((name for limit, name in _SIZES if total < limit), _LARGEST)],
            "dataset_info": {
                "features": _features(facts),
                "splits": [{"name": split, "num_examples": count} for split, count in counts.items()],
            },
        }
    )


def _counts(facts: Mapping[str, Any]) -> dict[str, int]:
    """Split → examples; those of a text are sequences, each of which predicts as many characters."""
    if is_text(facts):
        length = facts["sequence_length"]
        return {split: count // length for split, count in facts["characters"].items()} if length else {}
    return {split: sum(labels.values()) for split, labels in facts.get("label_counts", {}).items()}


def _features(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    if is_text(facts):
        return [{"name": "tokens", "sequence": "uint8"}]
    names = {str(place): plain(name) for place, name in enumerate(facts["label_names"])}
    return [{"name": "image", "dtype": "image"}, {"name": "label", "dtype": {"class_label": {"names": names}}}]


def _image(run: Run) -> str:
    """What an example's image is in the records."""
    encoding = (run["records"] or {}).get("encoding", "raw")
    kinds = {"raw": "raw uint8 pixels, row by row", "jpeg": "a JPEG file", "png": "a PNG file"}
    return kinds.get(encoding, "a JPEG or PNG file")


def _resize(run: Run) -> str:
    """How an image of another size becomes one that the network takes; "" where all had that size."""
    records = run["records"] or {}
    return _RESIZED.get(records.get("resize", ""), "") if records.get("image_size") else ""


def card_facts(run: Run, report: Report) -> dict[str, Any]:
    """What the cards' templates place, all of it still to be escaped."""
    facts, validation = run["evaluation"] or {}, run.get("validation_accuracy")
    several = run.get("val_tta_accuracy")
    nodes = [node for stage in report.lineage for node in stage["artefacts"]]
    records = next((node for node in nodes if node["stage"] == "Records"), None)
    return {
        "run": run,
        "name": f"{plain(run['model'])} on {dataset_name(run['dataset'])}",
        "dataset": dataset_name(run["dataset"]),
        "stand_in_for": dataset_name(run["requested_dataset"]) if is_stand_in(run) else "",
        "verified": data_verified(run),
        "image": _image(run),
        "input_shape": " × ".join(map(number, run["input_shape"] or ())),
        "accuracy": percent(run["val_accuracy"], 2),
        "validation_accuracy": percent(validation, 2) if validation is not None else "",
        "tta_accuracy": percent(several, 2) if several is not None else "",
        "outputs": run["outputs"],
        "resize": _resize(run),
        "error": percent(facts.get("expected_calibration_error")),
        "epochs": plural(run["epochs"], "epoch"),
        "labels": [plain(name) for name in facts.get("label_names", ())],
        "counts": [(plain(split), number(count)) for split, count in _counts(facts).items()],
        "characters": {plain(split): number(count) for split, count in facts.get("characters", {}).items()},
        "text_rows": text_rows(facts) if is_text(facts) else [],
        "is_text": run["problem"] == NEXT_TOKEN,
        "token": units_of_run(run).one,
        "tokens": units_of_run(run).many,
        "digests": [(plain(split), plain(digest)) for split, digest in (run["content_digests"] or {}).items()],
        "records": f"{layout.RECORDS}/{plain(records['artefact'])}" if records else "",
        "classes": class_rows(facts) if "classes" in facts else [],
        "confusions": confusion_rows(facts, _MOST_CONFUSIONS) if "classes" in facts else [],
    }


def _front_matter(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, indent=1, ensure_ascii=True, allow_nan=False)
    # As JSON and YAML read them they are the same: some viewers show the front matter as HTML.
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return f"---\n{text}\n---\n"
