"""``make train-worker``: train with process 0, which runs the pipeline on another host, on the same storage root."""

from tasks import program
from tasks.process import command_line
from tasks.train import Train


def main(argv: list[str]) -> int:
    """Train as often as process 0 asks for it, until it is done."""
    with command_line.in_force(["--module", "tasks", "Report", *argv]):
        Train().follow()
    return 0


if __name__ == "__main__":
    program.run(main)
