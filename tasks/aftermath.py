"""``python -m tasks.aftermath``: operations/on_failure.py, by the name that units installed earlier call it by."""

from tasks import program
from tasks.operations import on_failure

if __name__ == "__main__":
    program.run(on_failure.main)
