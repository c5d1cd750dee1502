"""Lineage: the artefacts a report comes from, each with all that made it."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.report.wording.formats import NO_FIGURE, number, plain
from pipeline.report.wording.receipt import leaf, leaves


def lineage_rows(stages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The stages a report comes from, each artefact with its name and (what, value) of all that made it."""
    return [
        {"stage": stage["stage"], "artefacts": [_artefact(node) for node in stage["artefacts"]]} for stage in stages
    ]


def _artefact(node: Mapping[str, Any]) -> dict[str, Any]:
    facts = [("fingerprint", plain(node["fingerprint"]))]
    if node["settings"] is None:
        facts.append(("more", "not under this storage root"))
    else:
        took, made_at = node["seconds"], plain(node["made_at"])
        facts.append(("took", f"{number(took, 1)} s" if isinstance(took, int | float) else NO_FIGURE))
        facts.append(("made", made_at))
        facts += [(plain(" / ".join(path)), leaf(value)) for path, value in leaves(dict(node["settings"]))]
        facts += [(plain(name), leaf(version)) for name, version in node["packages"].items()]
    return {"name": plain(node["artefact"]), "facts": facts}
