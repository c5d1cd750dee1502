"""Names of the folders under the storage root.

<root>/<kind>/<label>-<fingerprint>/   an artifact of a stage, or the checkpoints of an unfinished run
<root>/champion                        link to the run in use
<root>/report/                         the newest report
<root>/report/history/<date>/          a dated report, in a subfolder per experiment
"""

from pathlib import Path

SOURCE = "source"
RECORDS = "records"
RUNS = "runs"
# Outputs of a frozen backbone for records, which a training writes.
FEATURES = "features"
CHECKPOINTS = "checkpoints"
EXPORTS = "exports"
# Link to the run in use. "tensorcraft promote" sets it.
CHAMPION = "champion"
#: Kinds of published artifacts, each after its inputs.
KINDS = (SOURCE, RECORDS, FEATURES, RUNS, EXPORTS)
# Kinds that only earlier versions wrote.
PAST_KINDS = ("repetitions", "tuning")
REPORT = "report"
REPORT_PAGE = "report.html"
REPORT_DATA = "report.json"
# Results of verify-determinism, a file per run.
DETERMINISM = "determinism"
# Counts of predictions, a folder per run with a file per day.
WATCHED = "watched"
# Partial downloads by fingerprint, and a marker file per artifact that waits for its upload.
FETCHING = ".fetching"
UNPUSHED = ".unpushed"
# Searches of settings, each as journal, JSON and settings file.
SEARCHES = "search"
DATED_REPORTS = f"{REPORT}/history"
# In the name of a replaced artifact that contained unexpected files.
KEPT = ".kept-"


def artifact_folders(kind: Path) -> list[Path]:
    """Possible artifacts in the folder of a kind, sorted by name. Hidden and kept folders are left out."""
    return sorted(path for path in kind.glob("[!.]*") if KEPT not in path.name)
