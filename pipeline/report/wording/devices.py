"""Devices: on what a run was computed and on which data, and whether that is verified."""

from collections.abc import Mapping
from typing import Any

from pipeline.records.reference import CONTENT_DIGESTS
from pipeline.report.facts.reading import verified_as
from pipeline.report.wording.formats import dataset_name, number, plain, yes_no
from pipeline.runs.record import is_stand_in


def device_verified(run: Mapping[str, Any]) -> str:
    """Whether a run's or row's device is verified, and as what where it is not the one requested."""
    return verified_words(verified_as(run))


def verified_words(verified: bool | str) -> str:
    """The same of what `verified_as` found."""
    return f"yes, as {plain(verified)}" if isinstance(verified, str) else yes_no(verified)


def device_note(run: Mapping[str, Any]) -> str:
    """What is known of a run's device beyond its kind: its name, and how many replicas and processes if several."""
    replicas = f"{number(run['num_replicas'])} replicas" if run["num_replicas"] > 1 else ""
    # A row that was published, or of an earlier version, has none.
    processes = f"{number(run['processes'])} processes" if run.get("processes", 1) > 1 else ""
    return ", ".join(part for part in (plain(run["device_name"] or ""), replicas, processes) if part)


def device_phrase(run: Mapping[str, Any]) -> str:
    """A run's device within a sentence."""
    note = device_note(run)
    device = f"{plain(run['effective_device'])} ({note})" if note else plain(run["effective_device"])
    return device if run["device_verified"] else f"unverified {device}"


def data_phrase(run: Mapping[str, Any]) -> str:
    """A run's data within a sentence."""
    verified = {"yes": "verified ", "no": "unverified "}.get(data_verified(run), "")
    stand_in = f" data (a stand-in for {dataset_name(run['requested_dataset'])})" if is_stand_in(run) else ""
    return f"{verified}{plain(run['dataset'])}{stand_in}"


def data_verified(run: Mapping[str, Any]) -> str:
    """Whether a run's data are those of the original files: "yes", "no", or "no reference" where nothing says."""
    if not run["dataset_verified"] and run["dataset"] not in CONTENT_DIGESTS and not is_stand_in(run):
        return "no reference"
    return yes_no(run["dataset_verified"])


def computed_in(run: Mapping[str, Any]) -> str:
    """The precision, and the backend where it is not the usual one."""
    precision = plain(run["precision"])
    return f"{precision} by JAX" if run.get("backend") == "jax" else precision
