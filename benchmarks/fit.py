"""Training throughput: this pipeline's stream and precision against a plain float32 ``model.fit`` on arrays in memory.

    .venv/bin/python benchmarks/fit.py data/records/cifar10-…

The two train the same network by turns, A B A B …, in one process; the ratio is taken pair by pair, so that it holds on
a machine whose speed drifts. The first pair compiles and is left out.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import keras

from pipeline import hardware
from pipeline.manifest import read_manifest
from pipeline.models import build_model
from pipeline.stream import InputStream, Split
from pipeline.training import STEPS_PER_EXECUTION

GLOBAL_BATCH_SIZE = 128


def main() -> None:
    """Print images per second of each round and the median ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, help="folder of a records artefact")
    parser.add_argument("--rounds", type=int, default=5, help="pairs that count (5)")
    arguments = parser.parse_args()
    stream = InputStream(
        Split.of_manifest(arguments.records, read_manifest(arguments.records), "train"),
        global_batch_size=GLOBAL_BATCH_SIZE,
        seed=0,
        in_memory=True,
    )
    ours, plain = _ours(stream), _plain(stream)
    ratios = []
    for number in range(arguments.rounds + 1):
        rates = [stream.split.num_examples / seconds for seconds in (_timed(ours, number), _timed(plain, number))]
        if number:
            ratios.append(rates[0] / rates[1])
            print(f"round {number}: ours {rates[0]:,.0f} images/s, plain fit {rates[1]:,.0f}, ratio {ratios[-1]:.2f}")
    print(f"median ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


def _ours(stream: InputStream) -> Callable[[int], object]:
    placement = hardware.place("auto")
    with placement.strategy.scope():
        model = _model(
            hardware.choose_precision("auto", placement),
            jit_compile=hardware.choose_jit_compile("auto", placement),
            steps_per_execution=STEPS_PER_EXECUTION,
        )
    return lambda epoch: model.fit(stream.training(epoch), shuffle=False, verbose=0)


def _plain(stream: InputStream) -> Callable[[int], object]:
    images, labels = (array.numpy() for array in next(iter(_whole(stream).evaluation())))
    model = _model("float32")
    return lambda epoch: model.fit(images, labels, batch_size=GLOBAL_BATCH_SIZE, verbose=0)


def _whole(stream: InputStream) -> InputStream:
    return InputStream(stream.split, global_batch_size=stream.split.num_examples, seed=0, in_memory=True)


def _model(precision: str, **how: object) -> keras.Model:
    keras.config.set_dtype_policy({"float32": "float32", "bfloat16": "mixed_bfloat16"}[precision])
    model = build_model("baseline_cnn", (32, 32, 3), 10)
    model.compile(optimizer="rmsprop", loss="sparse_categorical_crossentropy", metrics=["accuracy"], **how)
    return model


def _timed(epoch: Callable[[int], object], number: int) -> float:
    started = time.perf_counter()
    epoch(number)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
