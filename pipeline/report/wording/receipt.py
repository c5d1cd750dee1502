"""Receipt: what a run requested and what it used, and the evidence for it."""

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.report.wording.devices import data_verified, device_note, device_verified
from pipeline.report.wording.formats import NO_FIGURE, plain, yes_no
from pipeline.runs.record import is_stand_in

# Name in the receipt, which stays as earlier runs have it → what the report calls it.
_SAID = {"doubts": "failed checks"}


def receipt(run: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """What a run asked for and what it got: (what, requested, effective, verified)."""
    device = f"{plain(run['effective_device'])}, {device_note(run)}".removesuffix(", ")
    data = f"{plain(run['dataset'])}, a stand-in" if is_stand_in(run) else plain(run["dataset"])
    if (verified := data_verified(run)) == "no reference":
        verified = "no reference checksum exists for this data set"
        digests = (f"{plain(split)} {plain(digest)}" for split, digest in (run["content_digests"] or {}).items())
        data = "; ".join([data, *(f"sha256 of {digest}" for digest in digests)])
    return [
        ("Device", plain(run["requested_device"]), device, device_verified(run)),
        ("Data", plain(run["requested_dataset"]), data, verified),
        ("Backend", plain(run["requested_backend"]), plain(run["backend"]), "not measured"),
        ("Precision", plain(run["requested_precision"]), plain(run["precision"]), "not measured"),
        ("XLA", _switch(run["requested_jit_compile"]), _switch(run["jit_compile"]), "not measured"),
    ]


def evidence(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The run's hardware receipt, whatever it holds, as (place, value) of each of its leaves."""
    facts = {_SAID.get(name, name): part for name, part in (run["receipt"] or {}).items()}
    return [(plain(" / ".join(path), 120), leaf(value)) for path, value in leaves(facts)]


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(path, value) of each leaf of what a run left as JSON."""
    if not isinstance(value, dict | list):
        yield path, value
        return
    for name, child in value.items() if isinstance(value, dict) else enumerate(value, start=1):
        yield from leaves(child, (*path, str(name)))


def leaf(value: Any) -> str:
    """A leaf as text."""
    if isinstance(value, bool):
        return yes_no(value)
    return NO_FIGURE if value is None else plain(value, 200)


def _switch(value: Any) -> str:
    return {True: "on", False: "off", None: "auto"}.get(value, plain(value))
