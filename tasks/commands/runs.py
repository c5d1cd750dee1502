"""The commands that use finished runs: ``report``, ``diff``, ``promote``, ``predict``, ``serve`` and others."""

import argparse
import contextlib
import http.server
import logging
import os
import sys
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

import luigi

from pipeline import machine
from pipeline.artifacts import layout
from pipeline.artifacts.publish import replacing, temporary_folder
from pipeline.errors import DamagedArtifactError, GateError, SettingsError, message, plural, refuse
from pipeline.optional_packages import install_command
from pipeline.predict import MAX_SHOWN, Job
from pipeline.problems import problem_class
from pipeline.problems.problem import units_of
from pipeline.records.features import ImageForm
from pipeline.serve import LOOPBACK, Service
from pipeline.settings.training import TEST_TIME_AUGMENTATION
from pipeline.sources.files import quoted
from pipeline.stage_process import in_child
from tasks import config_files
from tasks.commands import A_RUN, DEFAULT_RUN, Parser, argument, command, not_empty, run_folder, trained_run
from tasks.data import Records
from tasks.process import interrupt, lock
from tasks.report import Report, published_rows
from tasks.settings import Metrics, Storage, report_page, root_folder
from tasks.stage import Stage, manifests_in
from tasks.train import Train

_HOST = LOOPBACK[0]
_PAGE = f"/{layout.REPORT}/{layout.REPORT_PAGE}"

_logger = logging.getLogger(__name__)


@command(
    argument("--open", action="store_true", help="open the page in a browser"),
    argument("--serve", action="store_true", help="serve the page on this machine only, and reload it when it changes"),
    argument("--port", type=int, default=8765, help="port of --serve. 0 selects a free port (default: 8765)"),
)
def report(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Show the path of the newest report, open it or serve it. Nothing is trained."""
    page = report_page()
    if not page.is_file():
        raise SettingsError(f'{page}: expected a report, found none. Run "tensorcraft run" to make one.')
    if not arguments.serve:
        print(f"Report: {page}", flush=True)
        if arguments.open:
            webbrowser.open(page.as_uri())
        return 0
    try:
        server = http.server.ThreadingHTTPServer((_HOST, arguments.port), partial(Handler, directory=root_folder()))
    except (OSError, OverflowError) as error:
        raise SettingsError(f"--port: cannot listen on {arguments.port} ({error}). Pass another port.") from None
    address = f"http://{_HOST}:{server.server_port}{_PAGE}"
    print(f"Report: {address}\nPress Ctrl-C to stop.", flush=True)
    if arguments.open:
        webbrowser.open(address)
    with server, contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the reports and runs of the storage root ``directory`` to browsers of this machine.

    The script of the page reloads it when it changes (report.js).
    """

    # Browsers would download these types instead of showing them.
    _shown = dict.fromkeys((".csv", ".jsonl", ".log", ".md"), "text/plain; charset=utf-8")
    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | _shown

    def send_head(self) -> BinaryIO | None:
        """Send the headers of a file of a report or a run. Return its contents, or None after an error."""
        # Another site may have changed the address of its name to this machine.
        if self.headers["Host"] not in {f"{name}:{self.server.server_port}" for name in LOOPBACK}:
            return self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
        url = urlsplit(self.path).path
        if url == "/":
            self.send_response(HTTPStatus.FOUND)
            self.send_header("Location", _PAGE)
            return self.end_headers()
        names = []
        # A null byte, and before Python 3.13 links in a circle.
        with contextlib.suppress(ValueError, RuntimeError):
            path = Path(self.translate_path(self.path)).resolve()
            folders = [(Path(self.directory) / kind).resolve() for kind in (layout.REPORT, layout.RUNS)]
            names = [path.relative_to(folder).parts for folder in folders if path.is_relative_to(folder)]
        # Hidden folders have unfinished work.
        if not names or any(name.startswith(".") for name in names[0]):
            return self.send_error(HTTPStatus.NOT_FOUND)
        # The inherited method would follow a link named index.html.
        is_folder = url.endswith("/") and os.path.isdir(path)
        return self.list_directory(path) if is_folder else super().send_head()

    def end_headers(self) -> None:
        """Add headers that keep the scripts of all files but the page from running."""
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-cache")
        # A request that cannot be read has no path.
        if urlsplit(getattr(self, "path", "")).path != _PAGE:
            self.send_header("Content-Security-Policy", "sandbox")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@command(*(argument(name, type=not_empty, help=A_RUN) for name in ("A", "B")))
def diff(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Show the differences between two runs."""
    folders = [run_folder(name, getattr(arguments, name)) for name in ("A", "B")]
    from pipeline.report import compare_runs, format_differences

    print(format_differences(compare_runs(*folders), tuple(folder.name for folder in folders)), end="")
    return 0


@command(argument("run", metavar="RUN", type=not_empty, help=A_RUN))
def promote(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Make a run the champion, which other commands use by default."""
    folder, _ = trained_run("RUN", arguments.run)
    link = root_folder() / layout.CHAMPION
    if link.exists() and not link.is_symlink():
        raise SettingsError(f"{link}: expected a link to a run, got a file or folder. Move it elsewhere.")
    before = Path(os.readlink(link)).name if link.is_symlink() else "none"
    with replacing(link) as new_link:
        new_link.symlink_to(Path(layout.RUNS, folder.name))
    print(f"Champion before: {before}\nChampion now:    {folder.name}")
    return 0


@command()
def verify_determinism(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Retrain the run and compare the weights bit by bit."""
    from pipeline.runs.determinism import check_machine, compare, determinism_path, read_determinism

    train, before = Train(), None
    if train.processes > 1:
        refuse("Train", "processes", "1 for verify-determinism", train.processes)
    lock.hold(root_folder(), on_busy=Storage().on_busy)
    if not (status := train.status()).is_fresh:
        raise SettingsError(f'Train: expected a finished run, got one that is {status}. Run "tensorcraft run" first.')
    run = train.output().folder
    check_machine(run, machine.describe())
    train.fetch_inputs()
    # The log names the stage.
    train.trigger_event(luigi.Event.START, train)
    with (
        temporary_folder(determinism_path(run), train.bytes_needed()) as scratch,
        interrupt.time_limit(train.task_family, train.time_limit_seconds),
    ):
        again = scratch / "run"
        again.mkdir()
        train.train_into(again, scratch / "checkpoints")
        # A damaged result is replaced.
        with contextlib.suppress(DamagedArtifactError):
            before = read_determinism(run)
        result = compare(run, again, before)
    train.trigger_event(luigi.Event.SUCCESS, train)
    if not result.is_identical:
        weights = ", ".join(f"{one.weights_sha256} on {one.hostname}" for one in (result.first, *result.again))
        raise GateError(
            f"{run.name}: the weights differ between trainings, with sha256 {weights}. To use deterministic kernels, "
            "set [Train] deterministic = true."
        )
    sha256 = result.first.weights_sha256
    print(f"{run.name} is bit-identical in each training, weights sha256 {sha256}. Result: {determinism_path(run)}")
    return 0


def experiments(parser: Parser, argv: Sequence[str]) -> int:
    """List the experiments with their descriptions."""
    parser.parse_args(argv)
    files = config_files.experiments()
    width = max(map(len, files), default=0) + 2
    for name, path in files.items():
        print(f"{name:{width}}{config_files.description(path)}")
    return 0


@command()
def experiments_table(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Print the results of each experiment as Markdown."""
    report = next(stage for stage in stages if isinstance(stage, Report))
    from pipeline.report import build_report, format_experiments

    folders = [folder for folder, _ in report.whole_runs()]
    table = format_experiments(build_report(folders, current=[], published=published_rows()))
    if not table:
        raise SettingsError(f'{root_folder()}: expected finished runs, found none. Run "tensorcraft run" first.')
    print(table, end="")
    return 0


@command(
    argument("--port", default="6006", help="port to listen on. 0 selects a free port (default: 6006)"),
    argument("--load_fast", default="auto", help="TensorBoard's fast loader: true, false or auto (default: auto)"),
)
def tensorboard(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Start TensorBoard with all runs, on this machine only."""
    runs = root_folder() / Train.kind
    print(f"TensorBoard shows {runs}{'' if runs.is_dir() else ', which has no runs yet'}.", flush=True)
    flags = {"logdir": runs, "host": "127.0.0.1", "port": arguments.port, "load_fast": arguments.load_fast}
    program = [sys.executable, "-m", "tensorboard.main", *(f"--{name}={value}" for name, value in flags.items())]
    os.execv(program[0], program)


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
    run, output, units = Path(job.run), Path(arguments.output).expanduser(), units_of(job.problem)
    if (asked := arguments.test_time_augmentation) and not problem_class(job.problem).can_augment:
        raise SettingsError(
            f"--test-time-augmentation: expected a run on images, got {asked!r} for {units.files}. Remove the flag."
        )
    views = asked or job.views
    # The predictions for the test split are without views.
    job = replace(job, views=views, is_watched=job.is_watched and TEST_TIME_AUGMENTATION[views] == 1)
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
    if (num_views := TEST_TIME_AUGMENTATION[views]) > 1:
        used += f", with the mean of {num_views} views ({views}),"
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
    manifest = next((one for _, one in manifests_in(place) if one["fingerprint"] == expected), {})
    # Version 0.1 did not write the range.
    if "value_range" not in manifest.get("source", ()):
        raise SettingsError(
            f"{argument}: expected the run's records {expected[:12]} of version 0.2 or later in {place}, found none. "
            'Rebuild them with the settings of that run and "tensorcraft run".'
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


@command(
    argument("run", nargs="?", type=not_empty, metavar="RUN", help=f"{A_RUN} ({DEFAULT_RUN})"),
    argument("--host", default=LOOPBACK[0], type=not_empty, help=f"address to listen on, by default {LOOPBACK[0]}"),
    argument("--port", type=int, default=8000, help="port to listen on, by default 8000. 0 selects a free port"),
    argument("--max-body", type=float, default=20, metavar="MB", help="size of a request, by default 20"),
    argument("--timeout", type=float, default=30, metavar="SECONDS", help="time of a request, by default 30"),
    argument("--concurrency", type=int, default=64, metavar="N", help="requests at once, by default 64"),
)
def serve(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Serve a trained model, by default on this machine only."""
    needed = ("fastapi", "onnx", "onnxruntime", "python_multipart", "tf2onnx", "uvicorn")
    if missing := [name for name in needed if not find_spec(name)]:
        remedy = f"Install it with: {install_command('serve')}"
        raise SettingsError(f"serve: the package {missing[0]} is not installed. {remedy}")
    # The smallest size is a byte.
    for name, least in {"max_body": "0.000001", "timeout": "0.000001", "concurrency": "1"}.items():
        if not float(least) <= (value := getattr(arguments, name)) <= 1e6:
            raise SettingsError(f"--{name.replace('_', '-')}: expected {least} to 1000000, got {value}.")
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
    with contextlib.suppress(KeyboardInterrupt):
        in_child("pipeline.serve.server:serve", {"service": service, "manifest": manifest})
    return 0
