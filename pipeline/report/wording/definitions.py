"""Definitions: what the report's figures mean, for those who read it for the first time.

In the units of the problems that are in the report, and without what only others have.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pipeline.problems.units import IMAGE_CLASSIFICATION, NEXT_TOKEN, Units, units_of, units_of_run
from pipeline.report.wording.formats import capitalised

_ALL = ""
_KNOWN = (IMAGE_CLASSIFICATION, NEXT_TOKEN)

# Term → what is said where there are runs of a problem, in the order of the sentences.
_TERMS = (
    ("Requested and effective", {_ALL: "what the settings asked for, and what the run really used."}),
    ("Verified", {_ALL: "yes only where a measurement that could have failed confirms it; no means unknown. “Yes, as "
     "cpu”: another device was requested, and what is verified is that the run used cpu."}),
    ("Stand-in", {_ALL: "generated examples, used where the requested dataset is unavailable; they exercise the "
     "pipeline and say nothing about the dataset."}),
    ("Fallback", {_ALL: "the requested device was unavailable and the settings allowed training on another."}),
    ("Skipped", {_ALL: "the requested device was unavailable and the settings allowed leaving the run out."}),
    ("Resumed", {_ALL: "the run was interrupted and another process continued it from its last checkpoint, on the same "
     "kind of hardware; its times are those of all processes, and it is verified where each of them was."}),
    ("Mean ± deviation", {_ALL: "over the runs of a row, which differ in their seed alone; the sample standard "
     "deviation. Runs on two kinds of hardware, or of two versions of the code, are two rows; the host is a label."}),
    ("Speed-up", {_ALL: "{rates} of the row over those of the baseline it names: the newest row on a CPU, or where "
     "there is none the slowest, with the same code, library versions, dataset content and settings. Rows on stand-in "
     "data, on hardware that was not verified or not requested, and published rows, are no baseline and have no "
     "speed-up."}),
    ("Epoch and step time", {_ALL: "training seconds of an epoch, and those divided by its steps; epochs in which the "
     "model was compiled, the first of each process, are left out, so that a run of one epoch has none."}),
    ("Input-bound", {_ALL: "the device waited for {examples} in more than a tenth of a step's time; otherwise the run "
     "is compute-bound."}),
    ("Training time", {_ALL: "wall-clock seconds of all training epochs together, the first one included, "
     "evaluation left out (train_seconds)."}),
    ("{Rates}", {_ALL: "training {many} per second; without the epochs in which the model was compiled when there are "
     "others (examples_per_second). Published rows: all {many} over all seconds, the first epoch included."}),
    ("Test accuracy", {
        IMAGE_CLASSIFICATION: "share of the test images classified correctly after training (val_accuracy in "
        "report.json). The published tutorials call it validation accuracy.",
        NEXT_TOKEN: "share of the test split's {tokens} that were given a greater probability than any other "
        "(val_accuracy in report.json); no standard error is given, for {tokens} depend on one another. Of texts the "
        "best row is the one with the least test loss.",
    }),
    ("With TTA", {IMAGE_CLASSIFICATION: "with test-time augmentation: the accuracy where the network sees each image "
     "several times, mirrored or moved by a pixel ([Train] test_time_augmentation), and the mean counts "
     "(val_tta_accuracy); it takes as many times the operations as there are views. The test accuracy is without."}),
    ("Repeated", {_ALL: "whether the run, trained once more from the same records with the same settings (make "
     "verify-determinism), ended with the same weights: bit-identical where their sha256 was. Where it was not trained "
     "again nothing is said, but for not repeated where [Train] deterministic asked for such kernels."}),
    ("FLOP to an accuracy", {IMAGE_CLASSIFICATION: "floating-point operations of all training steps up to the end of "
     "the first epoch whose test accuracy is at least so much: operations of a step as the graph has them, whatever "
     "the machine; TensorFlow and JAX count some otherwise. Evaluation is left out. With test-time augmentation only "
     "the weights kept are evaluated: an earlier epoch may have reached it too."}),
    ("Validation accuracy", {_ALL: "the same share of {many} held out of the train split ([Records] validation_share), "
     "on which choices may be made; shown where there are any."}),
    ("Precision, recall, F1", {IMAGE_CLASSIFICATION: "of the images given a label, the share that has it; of those "
     "that have it, the share that was given it; the harmonic mean of both."}),
    ("Calibration", {IMAGE_CLASSIFICATION: "the expected calibration error is the mean distance between how sure the "
     "network was and how often it was right, over 15 bins of confidence, weighted by their images; 0 is perfect."}),
    ("σ", {
        _ALL: "how rare a change is if nothing but noise made it, in standard deviations of a normal distribution; by "
        "Student's t, for the noise is known from few runs: those that differ in their seed alone, or for accuracy, "
        "where there are none, the earlier runs, whose changes of code then count as noise. The noise of accuracy is "
        "at least the sampling error of the test split. Beyond 1.96 σ, which noise alone exceeds in 1 of 20 changes, a "
        "change is called better or worse. {Rates} are judged only where the machine was as fast, by the receipt's "
        "probe, to within the noise.",
        NEXT_TOKEN: "In the sampling error of a text five {tokens} count as one.",
    }),
    ("Comparable runs", {_ALL: "share dataset content, all settings that decide what is measured, and the hardware: "
     "device, replicas, granted cores and memory."}),
    ("Loss", {
        _ALL: "what training minimises, averaged over {many}; lower is better.",
        NEXT_TOKEN: "Of a text the test loss is in nats a {token}, −ln of the probability given to the {token} "
        "that came; bits a {token} are that over ln 2, perplexity is its exponential.",
    }),
    ("Temperature", {NEXT_TOKEN: "what the logits are divided by before the network draws a {token} that it writes: "
     "below 1 the likely ones become likelier."}),
    ("Batch", {_ALL: "{examples} per optimizer step, over all replicas together (global_batch_size)."}),
    ("Fingerprint", {_ALL: "hash of everything a run was made from; the scoreboard shows its first eight digits."}),
)  # fmt: skip


def definitions(runs: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(term, meaning) of what a report of these runs shows; of all problems where it shows none."""
    given: dict[str, dict[Units, None]] = {}
    for run in runs:
        given.setdefault(run["problem"], {})[units_of_run(run)] = None
    shown = [problem for problem in _KNOWN if problem in given] or _KNOWN
    counted = [units for problem in shown for units in given.get(problem, [units_of(problem)])]
    of_texts = given.get(NEXT_TOKEN, [units_of(NEXT_TOKEN)])
    rates = _named(counted, "rate")
    units = {
        "rates": rates,
        "Rates": capitalised(rates),
        "many": _named(counted, "many"),
        "examples": _named(counted, "examples"),
        "token": _named(of_texts, "one"),
        "tokens": _named(of_texts, "many"),
    }
    found = []
    for term, sentences in _TERMS:
        said = [sentences[problem] for problem in (_ALL, *shown) if problem in sentences]
        if said:
            meaning = " ".join([said[0], *map(capitalised, said[1:])])
            found.append((term.format(**units), meaning.format(**units)))
    return found


def _named(units: Iterable[Units], name: str) -> str:
    return " or ".join(dict.fromkeys(getattr(one, name) for one in units))
