"""``python -m tasks.aftermath``: report a run that was killed together with its parent."""

from tasks import program, scheduled

if __name__ == "__main__":
    program.run(scheduled.report_killed)
