"""Trains as one of several processes: ``python -m tests.one_of_several '[records, folder, checkpoints, settings]'``."""

import json
import logging
import sys
from pathlib import Path

if __name__ == "__main__":
    # The model of the tests is found here, by the process that trains too.
    sys.path.insert(0, str(Path(__file__).parent))
    from training_runs import run

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    records, folder, checkpoints, settings = json.loads(sys.argv[1])
    try:
        run(Path(records), Path(folder), checkpoints=Path(checkpoints), **settings)
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}")
