"""``python -m tasks.unattended Nightly``: a run nobody watches; see operations/supervise.py."""

from tasks import program
from tasks.operations import supervise

if __name__ == "__main__":
    program.run(supervise.main)
