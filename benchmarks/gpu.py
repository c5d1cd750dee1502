"""JAX on one device: receipt, throughput, utilization, what the input costs, and time to the tutorials' accuracy.

Needs JAX, Keras, NumPy, psutil, safetensors and records: a machine with a GPU may have no TensorFlow and no network.
Copy there this project and the records of CIFAR-10, which "make pipeline" leaves under data/records/.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import jax
import keras
import numpy as np
from jax import numpy as jnp
from rich.console import Console
from rich.table import Table

from benchmarks import BASELINE
from pipeline.artifacts.manifest import read_manifest
from pipeline.errors import PipelineError
from pipeline.hardware.jax import Jax
from pipeline.hardware.placement import Placement, choose_precision, place
from pipeline.hardware.receipt import verdict, write_receipt
from pipeline.models.build import build_model
from pipeline.problems import problem_of_records
from pipeline.problems.next_token import NextToken
from pipeline.problems.problem import open_split
from pipeline.settings.training import MODELS, TrainSettings
from pipeline.streams.numpy_stream import ColumnStream
from pipeline.training.model import compiled_model

RECORDS = Path("data/records")
BATCHES = (128, 512, 2_048, 8_192)
PRECISIONS = ("float32", "bfloat16")
# The tutorials' CPU runtime, after 5 epochs of the baseline CNN.
NETWORK, ACCURACY, MOST_EPOCHS = "baseline_cnn", 0.7242, 15
# Of what is timed; the first epoch compiles and does not count.
SECONDS, LEAST_EPOCHS = 2.0, 2
EVALUATION_BATCH_SIZE = 1_000
_INPUT_BATCHES = 64
# In the receipt's probe: not those of its host.
_OF_THE_DEVICE = ("matmul_flops_per_second", "convolution_flops_per_second")


class DeviceStream(ColumnStream):
    """The same batches from a split that lies on the device, gathered there."""

    def __init__(self, *where: object, **how: object) -> None:
        super().__init__(*where, **how)
        # On the first device; not bound to it, or the step would be compiled once more for what is.
        self._stored = jax.tree.map(jnp.asarray, super().examples(np.arange(self.split.num_examples)))
        self._gather = jax.jit(lambda columns, places: jax.tree.map(lambda column: column[places], columns))

    def examples(self, places: np.ndarray) -> tuple[jax.Array, jax.Array]:
        """Inputs and labels on the device."""
        return self._gather(self._stored, places.astype(np.int32))


def main(arguments: list[str]) -> int:
    """Measure; 0 where all was measured."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=Path, help=f"a records artifact of images; the newest under {RECORDS}")
    parser.add_argument("--device", default="gpu", choices=("cpu", "gpu", "tpu"), help="gpu")
    parser.add_argument("--networks", nargs="*", choices=_of_images(), help=f"{NETWORK} and the largest there is")
    parser.add_argument("--batches", nargs="*", type=int, default=BATCHES, help=", ".join(map(str, BATCHES)))
    parser.add_argument("--precisions", nargs="*", choices=PRECISIONS, default=PRECISIONS, help=", ".join(PRECISIONS))
    parser.add_argument("--epochs", type=int, default=MOST_EPOCHS, help=f"at most, to {ACCURACY:.2%} ({MOST_EPOCHS})")
    parser.add_argument("--output", type=Path, help="where the figures go as JSON; nowhere")
    asked = parser.parse_args(arguments)
    folder = asked.records or max(RECORDS.glob("cifar10-*"), key=lambda one: one.stat().st_mtime, default=None)
    if folder is None:
        parser.error(f'no records of cifar10 under {RECORDS}: run "make pipeline", or name others with --records')
    if asked.output and not asked.output.parent.is_dir():
        parser.error(f"--output: there is no folder {asked.output.parent}")
    try:
        measure(folder, asked)
    except PipelineError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def measure(folder: Path, asked: argparse.Namespace) -> None:
    """All that is asked for, printed and written as it is found: the machine may be taken away before the end."""
    manifest = read_manifest(folder)
    settings = TrainSettings(**BASELINE, backend="jax", device=asked.device)
    placement = place(settings)
    # One device is measured, however many there are.
    placement = replace(placement, strategy=placement.strategy[:1], num_replicas=1)
    receipts = {name: write_receipt(settings, placement, name) for name in asked.precisions}
    for name, receipt in receipts.items():
        _say(f"{receipt['device_name']}, {name}: {verdict(receipt)}")
    found = {
        "measured": datetime.now(UTC).date().isoformat(),
        "receipts": receipts,
        "falsified": _falsified(settings, placement),
        "to_accuracy": None,
        "throughput": [],
    }
    for how, receipt in found["falsified"].items():
        _say(f"the CPU in its place, {how}: {verdict(receipt)}")
    _keep(found, asked.output)
    if asked.epochs:
        found["to_accuracy"] = _to_accuracy(folder, manifest, placement, asked.epochs)
        _keep(found, asked.output)
    num_examples = manifest["splits"]["train"]["num_examples"]
    sizes = [size for size in asked.batches if size <= num_examples]
    for network, size, precision in product(asked.networks or _default_networks(manifest), sizes, asked.precisions):
        row = {"network": network, "global_batch_size": size, "precision": precision}
        try:
            row |= _throughput(folder, manifest, placement, receipts[precision], network, size, precision)
            _say(f"{network}, batch {size}, {precision}: {row['images_per_second']:,.0f} images/s")
        except jax.errors.JaxRuntimeError as error:
            # Such as a batch that the device has no memory for.
            row["error"] = str(error).partition("\n")[0]
            _say(f"{network}, batch {size}, {precision}: {row['error']}")
        found["throughput"].append(row)
        _keep(found, asked.output)
    _show([row for row in found["throughput"] if "error" not in row])


def _keep(found: Mapping, output: Path | None) -> None:
    if output:
        output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _throughput(
    folder: Path, manifest: Mapping, placement: Placement, receipt: Mapping, network: str, size: int, precision: str
) -> dict:
    """Of one network, batch and precision: images/s from files and from the device, and what the step takes alone."""
    settings = TrainSettings(
        **{**BASELINE, "model": network, "global_batch_size": size}, backend="jax", precision=precision
    )
    split = open_split(folder, manifest, "train")
    stream, on_device = (kind(split, global_batch_size=size) for kind in (ColumnStream, DeviceStream))
    model = _model(manifest, settings, placement, stream.steps_per_epoch)
    runtime, images = placement.runtime, stream.steps_per_epoch * size
    rates = {name: images / _epoch_seconds(model, each) for name, each in (("files", stream), ("device", on_device))}
    steps = min(model.steps_per_execution, stream.steps_per_epoch)
    batch = next(iter(on_device.training(0)))
    timed = runtime.timed_step(model, batch, steps)
    timed()
    step = statistics.median(timed() for _ in range(3)) / steps
    batches = stream.training(1).take(_INPUT_BATCHES)
    started = time.perf_counter()
    for made in batches:
        # With the way to the device.
        jax.block_until_ready(jax.device_put(made))
    input_seconds = (time.perf_counter() - started) / len(batches)
    flops = runtime.step_flops(model, batch)
    fastest = max(speed for name, speed in receipt["probe"].items() if name in _OF_THE_DEVICE)
    return {
        "parameters": model.count_params(),
        "images_per_second": rates["files"],
        "images_per_second_from_device": rates["device"],
        "step_seconds_alone": step,
        "input_seconds_alone": input_seconds,
        "input_bound": input_seconds > step,
        "step_flops": flops,
        "utilization_of_probe": flops and flops * rates["files"] / size / fastest,
    }


def _epoch_seconds(model: keras.Model, stream: ColumnStream) -> float:
    """The fastest of some epochs, after one that compiles."""
    model.fit(stream.training(0), shuffle=False, verbose=0)
    seconds: list[float] = []
    while len(seconds) < LEAST_EPOCHS or sum(seconds) < SECONDS:
        started = time.perf_counter()
        model.fit(stream.training(1 + len(seconds)), shuffle=False, verbose=0)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _to_accuracy(folder: Path, manifest: Mapping, placement: Placement, epochs: int) -> dict:
    """Seconds of training and evaluation, without those of compiling, until the baseline CNN is as good."""
    settings = TrainSettings(**{**BASELINE, "epochs": epochs}, backend="jax")
    how = {"global_batch_size": settings.global_batch_size}
    train = ColumnStream(open_split(folder, manifest, "train"), **how)
    test = ColumnStream(open_split(folder, manifest, "test"), global_batch_size=EVALUATION_BATCH_SIZE)

    def epoch(model: keras.Model, number: int) -> float:
        model.fit(train.training(number), shuffle=False, verbose=0)
        return model.evaluate(test.evaluation(), verbose=0, return_dict=True)["accuracy"]

    model = _model(manifest, settings, placement, train.steps_per_epoch)
    variables = [*model.variables, *model.optimizer.variables]
    began = [jnp.array(variable.value) for variable in variables]
    epoch(model, 0)
    # Compiled now; from the beginning once more.
    for variable, value in zip(variables, began, strict=True):
        variable.assign(value)
    accuracies: list[float] = []
    started = time.perf_counter()
    while len(accuracies) < epochs and max(accuracies, default=0) < ACCURACY:
        accuracies.append(epoch(model, len(accuracies)))
    seconds = time.perf_counter() - started
    reached = accuracies[-1] >= ACCURACY
    _say(
        f"{ACCURACY:.2%}: {'reached' if reached else 'not reached'} after {len(accuracies)} epochs and {seconds:.1f} s "
        f"({accuracies[-1]:.2%})"
    )
    about = {"accuracy": ACCURACY, "precision": choose_precision(settings.precision, placement), "reached": reached}
    return {**about, "seconds": seconds, "accuracies": accuracies}


def _model(manifest: Mapping, settings: TrainSettings, placement: Placement, steps: int) -> keras.Model:
    return compiled_model(manifest, settings, placement, steps)


class _Posing(Jax):
    """The host's CPU under an accelerator's names: only its speed gives it away."""

    def computations(self, device: str, side: int, dtype: str) -> dict[str, Callable[[], object]]:
        return super().computations("cpu", side, dtype)


def _falsified(settings: TrainSettings, placement: Placement) -> dict[str, dict]:
    """The receipts where the host's CPU computes in the accelerator's place; none where there is no accelerator."""
    if placement.effective_device == "cpu":
        return {}
    placements = {
        "under its own name": replace(placement, strategy=(jax.devices("cpu")[0],)),
        "under the device's name": replace(placement, runtime=_Posing()),
    }
    return {how: write_receipt(settings, one, "float32") for how, one in placements.items()}


def _of_images() -> list[str]:
    return sorted(set(MODELS) - set(NextToken.models))


def _default_networks(manifest: Mapping) -> list[str]:
    task = problem_of_records(manifest).task(manifest)

    def parameters(name: str) -> int:
        return build_model(name, task.input_shape, task.num_labels).count_params()

    return list(dict.fromkeys([NETWORK, max(_of_images(), key=parameters)]))


def _show(rows: list[Mapping]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    columns: dict[str, Callable[[Mapping], str]] = {
        "network": lambda row: row["network"],
        "batch": lambda row: f"{row['global_batch_size']:,}",
        "precision": lambda row: row["precision"],
        "images/s": lambda row: f"{row['images_per_second']:,.0f}",
        "data on the device": lambda row: f"{row['images_per_second_from_device']:,.0f}",
        "step alone": lambda row: f"{1e3 * row['step_seconds_alone']:.2f} ms",
        "input alone": lambda row: f"{1e3 * row['input_seconds_alone']:.2f} ms",
        "input-bound": lambda row: "yes" if row["input_bound"] else "no",
        "of the probe": lambda row: f"{row['utilization_of_probe']:.1%}" if row["utilization_of_probe"] else "–",
    }
    for heading in columns:
        table.add_column(heading)
    for row in rows:
        table.add_row(*(text(row) for text in columns.values()))
    Console().print(table)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
