"""The commands ``predict`` and ``serve``, which apply a trained model to images or texts."""

import argparse
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from pipeline.artifacts import layout
from pipeline.errors import SettingsError, message, plural
from pipeline.optional_packages import install_command
from pipeline.predict import MAX_SHOWN, Job
from pipeline.problems import problem_class
from pipeline.problems.units import units_of
from pipeline.records.features import ImageForm
from pipeline.serve import LOOPBACK, Service
from pipeline.settings.training import TEST_TIME_AUGMENTATION
from pipeline.sources.files import quoted
from pipeline.stage_process import in_child
from tasks.commands.command import A_RUN, DEFAULT_RUN, argument, command, not_empty, trained_run
from tasks.data import Records
from tasks.process import interrupt
from tasks.settings import Metrics, root_folder
from tasks.stage import Stage, manifests_in
from tasks.train import Train

_logger = logging.getLogger(__name__)


@command(
    argument("files", nargs="+", type=not_empty, help="images or texts, or folders of them"),
    argument("--model", type=not_empty, help=f"{A_RUN} ({DEFAULT_RUN})"),
    argument(
        "--test-time-augmentation",
        choices=TEST_TIME_AUGMENTATION,
        help="views per image whose predictions are averaged (default: those of the run's evaluation)",
    ),
    argument("--output", default="predictions", help="folder for the result (default: predictions)"),
)
def predict(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Run a trained model on images or texts."""
    job, _ = job_of("--model", arguments.model)
    from pipeline.problems.test_time_augmentation import NONE, VIEWS

    run, output, units = Path(job.run), Path(arguments.output).expanduser(), units_of(job.problem)
    if (asked := arguments.test_time_augmentation) and not problem_class(job.problem).can_augment:
        raise SettingsError(
            f"--test-time-augmentation: expected a run on images, got {asked!r} for {units.files}. Remove the flag."
        )
    views = asked or job.views
    # The predictions for the test split are without views.
    job = replace(job, views=views, is_watched=job.is_watched and views == NONE)
    _logger.info("Predicting with the run %s.", run.name)
    paths = [str(Path(path).expanduser()) for path in arguments.files]
    inputs = {"job": job, "inputs": paths, "folder": output, "settings": Records().settings}
    found = in_child("pipeline.predict.job:predict", inputs)
    csv, total, predicted = output / "predictions.csv", found["files"], found["files"] - found["errors"]
    if found["errors"]:
        headline = f"{found['errors']:,} of {total:,} {units.files} have no prediction:"
        reasons = [f"  {quoted(row['path'])}: {row['error']}" for row in found["unusable"]]
        _logger.warning("\n".join([headline, *reasons, *_more(found["errors"], csv)]))
    if not predicted:
        raise SettingsError(f"FILES: expected {units.files}, got {plural(total, 'unusable file')}. See {csv}.")
    print("\n".join([_table(found["rows"]), *_more(predicted, csv)]), end="\n\n")
    used = f"{predicted:,} of {total:,} {units.files} with {run.name}"
    if views != NONE:
        used += f", with the mean of {len(VIEWS[views])} views ({views}),"
    print(f"Predicted {used} to {output / 'predictions.parquet'} and {csv}.")
    return 0


def _table(rows: Sequence[Mapping]) -> str:
    """The predictions of files as a table for the terminal."""
    from pipeline.report.blocks import Column, Table
    from pipeline.report.render import format_rows

    columns = [Column(name.replace("_", " "), is_number=not isinstance(value, str)) for name, value in rows[0].items()]
    return format_rows(Table(columns, [[_cell(*item) for item in row.items()] for row in rows])).rstrip()


def _cell(name: str, value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1%}" if name == "probability" else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else quoted(str(value))


@message
def _more(count: int, csv: Path) -> list[str]:
    return [f"… and {count - MAX_SHOWN:,} more in {csv}"] if count > MAX_SHOWN else []


def job_of(argument: str, run: str | None) -> tuple[Job, dict]:
    """The job that predicts with a run, by default in the views of its evaluation, and the manifest of its records."""
    folder, record = trained_run(argument, run)
    expected, place = record.records_fingerprint, root_folder() / layout.RECORDS
    manifest = next((one for _, one in manifests_in(place) if one["fingerprint"] == expected), None)
    if not manifest:
        raise SettingsError(
            f"{argument}: expected the run's records {expected[:12]} in {place}, found none. Rebuild them with the "
            'settings of that run and "tensorcraft run".'
        )
    job = Job(
        run=str(folder),
        label_names=tuple(manifest["label_names"]),
        problem=record.problem,
        form=ImageForm.of_manifest(manifest),
        views=record.test_time_augmentation,
        model=Train().model,
        value_range=tuple(manifest["source"]["value_range"]),
        is_watched=Metrics().watch_predictions == "true",
    )
    return job, manifest


def number(text: str, kind: type = float, least: str = "0.000001", name: str = "a number") -> float:
    """The type of a limit. The smallest size is a byte."""
    with contextlib.suppress(ValueError):
        if float(least) <= (value := kind(text)) <= 1e6:
            return value
    raise argparse.ArgumentTypeError(f"expected {name} from {least} to 1000000, got {text}")


_integer = partial(number, kind=int, least="1", name="an integer")


@command(
    argument("run", nargs="?", type=not_empty, metavar="RUN", help=f"{A_RUN} ({DEFAULT_RUN})"),
    argument("--host", default=LOOPBACK[0], type=not_empty, help=f"address to listen on, by default {LOOPBACK[0]}"),
    argument("--port", type=int, default=8000, help="port to listen on, by default 8000. 0 selects a free port"),
    argument("--max-body", type=number, default=20, metavar="MB", help="size of a request, by default 20"),
    argument("--timeout", type=number, default=30, metavar="SECONDS", help="time of a request, by default 30"),
    argument("--concurrency", type=_integer, default=64, metavar="N", help="requests at once, by default 64"),
)
def serve(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Serve a trained model, by default on this machine only."""
    needed = ("fastapi", "onnx", "onnxruntime", "python_multipart", "tf2onnx", "uvicorn")
    if missing := [name for name in needed if not find_spec(name)]:
        raise SettingsError(
            f"serve: the package {missing[0]} is not installed. Install it with: {install_command('serve')}"
        )
    job, manifest = job_of("RUN", arguments.run)
    service = Service(
        job=job,
        host=arguments.host,
        port=arguments.port,
        max_body_bytes=int(arguments.max_body * 1e6),
        timeout_seconds=arguments.timeout,
        concurrency=arguments.concurrency,
    )
    if not service.is_local:
        _logger.warning("Other machines can reach the server, which has no authentication and no encryption.")
    interrupt.listen()
    with contextlib.suppress(KeyboardInterrupt):
        in_child("pipeline.serve.server:serve", {"service": service, "manifest": manifest})
    return 0
