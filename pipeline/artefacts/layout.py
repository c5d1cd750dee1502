"""Layout: the names of the folders under the storage root, in one place.

<root>/source/<dataset>-<fingerprint>/      what the source holds
<root>/records/<dataset>-<fingerprint>/     sharded TFRecords
<root>/runs/<model>-<fingerprint>/          one trained run
<root>/checkpoints/<model>-<fingerprint>/   what that run resumes from, until it is published
<root>/exports/<model>-<fingerprint>/       that run in other forms, where it was asked for
<root>/repetitions/<model>-<fingerprint>/   whether training it again gave the same weights, where it was asked for
<root>/report/                              the newest report, always at this path
<root>/report/history/<date>/               the report of that date, where runs are scheduled
<root>/report/history/<experiment>/<date>/  the same, of an experiment
"""

SOURCE = "source"
RECORDS = "records"
RUNS = "runs"
CHECKPOINTS = "checkpoints"
EXPORTS = "exports"
REPETITIONS = "repetitions"
REPORT = "report"
# What is being fetched from the remote, by fingerprint, and a file for each artefact that is still to be pushed there.
FETCHING = ".fetching"
UNPUSHED = ".unpushed"
DATED_REPORTS = f"{REPORT}/history"
