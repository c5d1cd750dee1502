"""``python -m tasks.unattended Nightly``: a scheduled run, as scheduled.py describes it."""

from tasks import program, scheduled

if __name__ == "__main__":
    program.run(scheduled.run_scheduled)
