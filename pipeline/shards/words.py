"""Words: what the shards say of the data; no artefact's identity covers this module, rewording rebuilds nothing."""

from collections.abc import Mapping

_MAX_LABELS = 10


def warnings(findings: Mapping, num_test: int) -> list[tuple[str, str]]:
    """(headline, explanation) of each finding."""
    found = []
    if few := findings["few_examples"]:
        listed = ", ".join(f"{name} ({count})" for name, count in [*few.items()][:_MAX_LABELS])
        more = f" and {len(few) - _MAX_LABELS:,} more" if len(few) > _MAX_LABELS else ""
        found.append(("Labels with fewer than ten examples", f"{listed}{more}: too few to learn from or to judge by."))
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


_WHICH = "Which: duplicates.csv beside the records."
