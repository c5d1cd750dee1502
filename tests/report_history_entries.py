"""Entries of the report's history, written by hand, and what has changed from one to the next."""

from report_runs import RUN

DIGESTS = {"train": "1" * 64, "test": "2" * 64}


def entry(number, accuracy, *, made_from=None, **more):
    """An entry of the history: the n-th run, a day after the one before it."""
    from pipeline.report.data import reading

    name = f"{number:064x}"
    facts = {
        "fingerprint": name,
        "made_from": made_from or name,
        "content_digests": DIGESTS,
        "finished_at": f"2026-03-{number:02d}T10:00:00+00:00",
        "test_accuracy": accuracy,
        "status": "finished",
    }
    return reading.Entry(**{**RUN, **facts, **more})


def change_of(entries, *current):
    from pipeline.report.data.history import changes, comparable_groups

    names = {f"{number:064x}" for number in current}
    asked = {(one.fingerprint, one.finished_at) for one in entries if one.fingerprint in names}
    (change,) = changes(comparable_groups(entries), asked)
    return change


def past():
    """Four entries whose accuracy rises by 0.1 points per day."""
    return [entry(n, 0.70 + n / 1000) for n in range(1, 5)]
