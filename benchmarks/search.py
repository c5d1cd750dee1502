"""Compares a search by Optuna's TPE with a random search of as many trials, on Fashion-MNIST.

``python -m benchmarks.search ROOT [study seeds] [trials]`` prints a line of JSON per search.
The first ten trials of both are the same random draws, which the second search reuses. Both are pruned alike. The best
settings are not repeated with other seeds. ROOT is a storage root for this comparison alone.
"""

import json
import os
import sys
import time
from pathlib import Path
from subprocess import run

PROJECT = Path(__file__).resolve().parent.parent
SPACE = (
    "learning_rate=log:1e-4:1, label_smoothing=0:0.3, training_recipe=[onecycle, adam, muon], "
    "global_batch_size=[64, 128, 256, 512]"
)
SETTINGS = {
    "Source-dataset": "fashion_mnist",
    "Source-origin": "tfds",
    "Records-validation-share": "0.1",
    "Train-model": "mnist_dense",
    "Train-epochs": "3",
}
# The command, without repeated seeds and with the other sampler.
_PROGRAM = """
import optuna
from pipeline.runs import study
from tasks.commands import run
run.MORE_SEEDS, study.SAMPLER = 0, getattr(optuna.samplers, {!r})
from tasks.__main__ import main
main()
"""


def search(root: Path, sampler: str, seed: int, trials: int) -> dict:
    """Run a search, and return its best accuracy so far after each trial, and how many trials were pruned."""
    flags = {**SETTINGS, "Train-seed": f"{seed}", "Storage-root": f"{root}"}
    words = ["search", "--space", SPACE, "--trials", f"{trials}", *(f"--{name}={text}" for name, text in flags.items())]
    began = time.monotonic()
    command = [sys.executable, "-c", _PROGRAM.format(sampler), *words]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    run(command, cwd=PROJECT, env=environment, stdout=sys.stderr, check=True)
    (path,) = root.glob("search/*.json")
    found = json.loads(path.read_text(encoding="utf-8"))
    # Both searches have the same name.
    (root / "search").rename(root / f"search-{sampler}-{seed}")
    best, course = 0.0, []
    for trial in found["trials"]:
        best = max([best, *trial["values"].values()]) if trial["state"] == "finished" else best
        course.append(round(best, 4))
    pruned = sum(trial["state"] == "pruned" for trial in found["trials"])
    return {"best": best, "course": course, "pruned": pruned, "seconds": round(time.monotonic() - began)}


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    num_seeds, num_trials = (int(text) for text in [*sys.argv[2:], "2", "20"][:2])
    for study_seed in range(num_seeds):
        for name in ("RandomSampler", "TPESampler"):
            found = search(folder, name, study_seed, num_trials)
            print(json.dumps({"seed": study_seed, "sampler": name, **found}), flush=True)
