"""Figures: those of one run beyond its line on the scoreboard, its epochs and its exported forms."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.problems.judged import judged
from pipeline.problems.units import NEXT_TOKEN, units_of_run
from pipeline.report.facts.to_accuracy import to_accuracy
from pipeline.report.wording.formats import NO_FIGURE, capitalised, megabytes, moment, number, percent, plain, plural
from pipeline.report.wording.runs import network_and_recipe
from pipeline.report.wording.text import bits, perplexity

EPOCH_HEADINGS = (
    "epoch",
    "training accuracy",
    "test accuracy",
    "training loss",
    "test loss",
    "training, s",
    "evaluation, s",
    "per second",
    "learning rate",
)
EXPORT_HEADINGS = ("form", "size", "accuracy", "agrees with Keras")


def tiles(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The few figures one looks for first: (what, figure with its unit)."""
    return [
        *_loss_tiles(run),
        ("Test accuracy", percent(run["val_accuracy"], 2)),
        *_figure_tile("Test accuracy with test-time augmentation", run.get("val_tta_accuracy")),
        *_figure_tile("Validation accuracy", run.get("validation_accuracy")),
        *_figure_tile("Validation accuracy with test-time augmentation", run.get("validation_tta_accuracy")),
        ("Training time", f"{number(run['train_seconds'], 1)} s"),
        (capitalised(units_of_run(run).rate), number(run["examples_per_second"])),
        ("First epoch", f"{number(run['first_epoch_seconds'], 1)} s"),
    ]


def _figure_tile(what: str, accuracy: float | None) -> list[tuple[str, str]]:
    return [(what, percent(accuracy, 2))] if accuracy is not None else []


def _loss_tiles(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Of a text the loss is what one looks for, in the units that people publish."""
    if run["problem"] != NEXT_TOKEN:
        return []
    one, nats = units_of_run(run).one, run["val_loss"]
    return [("Test loss, nats", number(nats, 4)), (f"Bits a {one}", bits(nats)), ("Perplexity", perplexity(nats))]


def circumstances(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The rest of what one would need to repeat a run: (what, value)."""
    batch = f"{number(run['global_batch_size'])} {units_of_run(run).examples}"
    return [
        ("Model / recipe", network_and_recipe(run)),
        *_beyond_ours(run),
        ("Global batch", f"{batch} over {plural(run['num_replicas'], 'replica')}"),
        ("Seed", plain(run["seed"])),
        *_choices(run),
        ("Test loss", number(run["val_loss"], 4)),
        *_standard_error(run),
        *_to_accuracy(run),
        ("Finished", moment(run["finished_at"])),
        ("Host", plain(run["hostname"] or "unknown")),
        ("Fingerprint", plain(run["fingerprint"])),
        ("Peak memory", f"host {megabytes(run['peak_host_bytes'])}, device {megabytes(run['peak_device_bytes'])}"),
    ]


def _standard_error(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    accuracy, examples = run["val_accuracy"], run["test_examples"]
    # Characters of one sequence are not independent of one another: what this formula says would be too little.
    if judged(run["problem"]).predictions_per_draw > 1 or accuracy is None or not examples or not 0 <= accuracy <= 1:
        return []
    error = 100 * math.sqrt(accuracy * (1 - accuracy) / examples)
    return [("Standard error of the test accuracy", f"{number(error, 2)} points, of {number(examples)} images")]


def _to_accuracy(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Of the goals that the run reached; nothing where it reached none."""
    found = []
    for one in to_accuracy(run):
        flops = f"{one['flops']:.2e} FLOP" if one["flops"] is not None else ""
        seconds = f"{number(one['seconds'], 1)} s" if one["seconds"] is not None else ""
        spent = ", ".join(filter(None, [flops, seconds, plural(one["epoch"], "epoch")]))
        how = " with test-time augmentation" if one["with_views"] else ""
        found.append((f"Training to {percent(one['goal'], 0)} test accuracy{how}", spent))
    return found


def _choices(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a run says of augmentation and of the epoch it kept, where its settings ask for either."""
    found = []
    if run["augment"]:
        counts = "the label of the greater part counts" if "mixup" in run["augment"] else "as the network saw them"
        found.append(
            ("Augmentation", f"{plain(run['augment'], 120)}; training accuracy is on augmented images, {counts}")
        )
    if run["keep"] != "last" and run["kept_epoch"] is not None:
        found.append(("Weights kept", f"epoch {number(run['kept_epoch'])}, the best on the validation split"))
    if run["patience"] and run["ended"]:
        patience = f"no better epoch on the validation split in {plural(run['patience'], 'epoch')}"
        found.append(("Training ended", patience if run["ended"] == "patience" else "after all its epochs"))
    return found


def _beyond_ours(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is said only where a run differs in it from one of a network and a recipe of ours."""
    facts = []
    if run["outputs"] == "logits":
        facts.append(("Network gives", "logits; probabilities are their softmax"))
    if run["initial_weights_digest"]:
        which = f"run {plain(run['initial_run'])[:12]}" if run["initial_run"] else plain(run["initial_weights"])
        facts.append(("Initial weights", f"{which}, sha256 {plain(run['initial_weights_digest'])[:12]}"))
    beginning = run.get("beginning") or {"taken": (), "left": {}, "frozen": ()}
    if examples := beginning.get("adapted_examples"):
        facts.append(("Adapted to", f"{number(examples)} examples of train"))
    for what, names in (("Layers that took them", "taken"), ("Layers that did not", "left"), ("Frozen", "frozen")):
        if beginning[names]:
            facts.append((what, plain(", ".join(beginning[names]), 400)))
    return facts


def epoch_rows(epochs: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The figures of a run's epochs, in the order of EPOCH_HEADINGS."""
    return [
        (
            number(row["epoch"]),
            percent(row["accuracy"], 2),
            percent(row["val_accuracy"], 2),
            number(row["loss"], 4),
            number(row["val_loss"], 4),
            number(row["train_seconds"], 2),
            number(row["evaluation_seconds"], 2),
            number(row["examples_per_second"]),
            f"{row['learning_rate']:.2e}" if row["learning_rate"] is not None else NO_FIGURE,
        )
        for row in epochs
    ]


def export_rows(facts: Mapping[str, Any] | None) -> list[tuple[str, ...]]:
    """The forms a run was exported in: (form, size, accuracy, agreement with Keras)."""
    forms = (facts or {}).get("forms", {})
    return [
        (
            plain(name),
            f"{number(form['bytes'] / 1e6, 2)} MB",
            percent(form["accuracy"], 2),
            percent(form["agreement"], 2),
        )
        for name, form in forms.items()
    ]
