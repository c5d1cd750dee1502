"""Reading: a run's folder to the plain dict all of the report works on.

A run folder is untrusted: names and types are checked once, by the schemas of what it holds, so that everything after
may rely on them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.artefacts.fingerprint import fingerprint
from pipeline.artefacts.manifest import MANIFEST_NAME, read_fetched, read_manifest
from pipeline.errors import DamagedArtefactError
from pipeline.problems.units import BYTES
from pipeline.report.data.evaluation import read_evaluation
from pipeline.runs.metrics import METRICS_NAME, read_metrics
from pipeline.runs.record import SKIPPED, names, read_record
from pipeline.runs.untrusted import message


def read_run(folder: Path) -> dict[str, Any]:
    """Read one run: the fields of its record and more.

    `curves`: the rows of metrics.jsonl. `evaluation`: None if there is none. `resumed`: first `epoch` and `hostname` of
    each process that resumed it, one epoch too many if none was left. `fetched_from`: its remote. `made_from` and
    `code`: hashes of the manifest's identity without seed and batch, and of code and library versions alone.

    Raises:
        DamagedArtefactError: A file is missing or damaged; names file and field.
    """
    run = read_record(folder).model_dump(mode="json")
    skipped = run["status"] == SKIPPED
    evaluation = None if skipped else read_evaluation(folder, run["problem"])
    if (evaluation or {}).get("tokens") == BYTES:
        # Records before version 10 did not say so.
        run["tokens"] = BYTES
    return {
        **run,
        **_origin(folder),
        "resumed": _resumed(run),
        "fetched_from": (read_fetched(folder) or {"remote": ""})["remote"],
        "curves": [] if skipped else read_metrics(folder / METRICS_NAME),
        "evaluation": evaluation,
    }


def _resumed(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    if not run["segments"] and run["epochs_restored"]:
        # An earlier version recorded the last time alone.
        return [{"epoch": run["epochs_restored"] + 1, "hostname": run["hostname"]}]
    found = [{"epoch": one["first_epoch"], "hostname": one["hostname"]} for one in run["segments"][1:]]
    if run["segments"] and run["epochs_restored"] >= run["segments"][-1]["last_epoch"]:
        # No epoch was left to train: it is resumed all the same, and no segment says so.
        found.append({"epoch": run["epochs_restored"] + 1, "hostname": run["finished_on"]})
    return found


def _origin(folder: Path) -> dict[str, str | None]:
    if not (folder / MANIFEST_NAME).exists():
        return {"made_from": None, "code": None}
    identity = read_manifest(folder)["identity"]
    try:
        settings, upstream = dict(identity["settings"]), dict(identity["upstream"])
    except (KeyError, TypeError, ValueError) as error:
        problem = f'"identity": expected settings and upstream, found other ({error!r})'
        raise DamagedArtefactError(message(folder / MANIFEST_NAME, problem)) from error
    # By their names in the record, which are the settings' own for these.
    for name in ("global_batch_size", *names("setting", repeated=True)):
        settings.pop(name, None)
    # Earlier versions measured how a network is computed best, anew for each batch; the record says what it came to.
    upstream.pop("computation", None)
    return {
        "made_from": fingerprint({**identity, "settings": settings, "upstream": upstream}),
        "code": fingerprint({part: identity.get(part) for part in ("code", "packages")}),
    }
