"""Words: what the shards say of the data; no artefact's identity covers this module, rewording rebuilds nothing."""

from collections.abc import Mapping

_MAX_LABELS = 10


def warnings(findings: Mapping, num_test: int, *, has_labels: bool = True) -> list[tuple[str, str]]:
    """(headline, explanation) of each finding; examples without labels are sequences of a text."""
    if not has_labels:
        count = len(findings["test_in_train"])
        share = f"{count:,} of {num_test:,} test sequences are in the train split too, letter for letter. {_WHICH}"
        repeated = [("Test sequences in the train split", share)] if count else []
        return [*_never_trained_on(findings, "Characters"), *repeated]
    found = _never_trained_on(findings, "Labels")
    if few := findings["few_examples"]:
        found.append(("Labels with fewer than ten examples", f"{_listed(few)}: too few to learn from or to judge by."))
    if unequal := findings["imbalance"]:
        (large, most), (small, least) = unequal["largest"], unequal["smallest"]
        reason = f"The train split has {most:,} of {large} and {least:,} of {small}, ten times as many or more"
        found.append(("Very unequal labels", f"{reason}: accuracy says little of the small ones."))
    if count := findings["two_labels"]:
        images = "1 image is" if count == 1 else f"{count:,} images are"
        found.append(("The same image under two labels", f"{images} listed under more than one label. {_WHICH}"))
    if count := len(findings["test_in_train"]):
        share = f"{count:,} of {num_test:,} test images are in the train split too, with the same stored bytes"
        found.append(
            ("Test images in the train split", f"{share}. The evaluation gives the accuracy without them. {_WHICH}")
        )
    return found


def _never_trained_on(findings: Mapping, what: str) -> list[tuple[str, str]]:
    if not (counts := findings["never_trained_on"]):
        return []
    # As a string literal, where it is no letter: a control character reaches no terminal.
    listed = _listed({name if name.isprintable() and name.strip() else ascii(name): n for name, n in counts.items()})
    return [(f"{what} of the test split that train never has", f"{listed}: no network can know them.")]


def _listed(counts: Mapping[str, int]) -> str:
    listed = ", ".join(f"{name} ({count:,})" for name, count in [*counts.items()][:_MAX_LABELS])
    return listed + (f" and {len(counts) - _MAX_LABELS:,} more" if len(counts) > _MAX_LABELS else "")


_WHICH = "Which: duplicates.csv beside the records."


def shard_missing(name: str) -> str:
    """A runner lost all records of a shard, or its writer's note."""
    return f"Beam ended the job without the shard {name}"


def not_each_once(name: str, expected: int, found: int) -> str:
    """A runner lost records, or brought some twice."""
    return f"{name}: expected {expected} records, each once, the runner brought {found}"


def no_note(place: str) -> str:
    """A note of a shard that no writer of ours left."""
    return f"{place}: expected sha256 and bytes of a shard, found something else. Who else writes to [Storage] remote?"


def not_our_places(place: str) -> str:
    """Where a block's examples go is not what the job left there."""
    return f"{place}: expected the places that this job left, found something else. Who else writes there?"
