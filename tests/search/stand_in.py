"""A stand-in for Python that publishes runs without training them, see test_search_command.py.

``stand_in.py PYTHON -P -m tasks Train --flag=value …`` writes the files of an ordinary run, an epoch at a time. The
validation accuracy depends on the learning rate, and the test accuracy is the contrary. Other stages are run as always.
"""

import json
import os
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path

EPOCHS = 3
# So bad a run waits after its second epoch, until it is interrupted, if this many runs are finished. The pruner needs
# five, and a process may not have ended a trial that is finished.
LOW, FINISHED = 0.3, 6


def accuracy(learning_rate: float, seed: int) -> float:
    return 0.9 - seed / 100 if learning_rate < 0.01 else 0.1


def train(flags: list[str]) -> None:
    sys.argv = ["tasks", *flags]
    from report_runs import EPOCH, RUN

    import tasks
    from pipeline.artifacts.publish import publishing
    from tasks.process import lock
    from tasks.settings import in_force

    with in_force(["--module", "tasks", "Train", *flags]):
        run = tasks.Train()
        rate, seed, root = run.learning_rate, run.seed, run.root
        lock.hold(root, on_busy=tasks.Storage().on_busy)
        with (root / "trainings").open("a") as file:
            file.write(f"{' '.join(flags)}\n")
        if rate > 0.5:
            # Such as a batch that needs too much memory.
            raise SystemExit(1)
        if (root / "full").exists():
            # Exit code of a full disk.
            raise SystemExit(6)
        if (root / f"seed-{seed}-fails").exists():
            raise SystemExit(1)
        artifact = run.output()
        if artifact.status().is_fresh:
            return
        value = accuracy(rate, seed)
        # Such a run is at its end when it is interrupted.
        is_late = (root / "late").exists()
        finished = FINISHED if is_late else len([*root.glob("runs/[!.]*")])
        with publishing(artifact.folder) as folder:
            for epoch in range(1, EPOCHS + 1):
                scores = {"validation_accuracy": value * epoch / EPOCHS, "test_accuracy": 1 - value}
                with (folder / "metrics.jsonl").open("a") as file:
                    file.write(json.dumps({**EPOCH, **scores, "epoch": epoch}) + "\n")
                with suppress(KeyboardInterrupt) if is_late else nullcontext():
                    while epoch == 2 and value < LOW and finished >= FINISHED:
                        time.sleep(0.02)
            record = {**RUN, "validation_accuracy": value, "test_accuracy": 1 - value, "seed": seed}
            (folder / "run.json").write_text(json.dumps(record))
            from pipeline.artifacts.manifest import write_manifest

            write_manifest(folder, stage="Train", identity=artifact.identity, details={"seconds": 1.0})
        if is_late:
            raise KeyboardInterrupt


if __name__ == "__main__":
    python, *arguments = sys.argv[1:]
    if "Train" in arguments:
        sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
        train(arguments[arguments.index("Train") + 1 :])
    elif "Report" in arguments:
        print("report of", *arguments[arguments.index("Report") + 1 :])
    else:
        os.execv(python, [python, *arguments])
