"""Names of the folders under the storage root, in one place.

<root>/<kind>/<label>-<fingerprint>/   an artifact of the stage; checkpoints are those of an unfinished run
<root>/report/                         the newest report, always at this path
<root>/report/history/<date>/          the dated reports; those of an experiment are in a folder of its own
"""

from pathlib import Path

SOURCE = "source"
RECORDS = "records"
RUNS = "runs"
CHECKPOINTS = "checkpoints"
EXPORTS = "exports"
# Kinds of earlier versions, which no stage makes any more.
PAST_KINDS = ("repetitions", "tuning")
REPORT = "report"
# A file for each run that was trained again, see pipeline/runs/determinism.py.
DETERMINISM = "determinism"
# Partial downloads from the remote by fingerprint, and a file for each artifact that is still to be uploaded.
FETCHING = ".fetching"
UNPUSHED = ".unpushed"
DATED_REPORTS = f"{REPORT}/history"
# In the name of a replaced artifact that contained files of somebody else.
KEPT = ".kept-"


def artifact_folders(kind: Path) -> list[Path]:
    """Everything in the folder of a kind that may be an artifact, by name; hidden and kept folders are none."""
    return sorted(path for path in kind.glob("[!.]*") if KEPT not in path.name)
