"""Trains as one of several processes: ``python -m tests.one_of_several '[records, folder, checkpoints, settings]'``."""

import json
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    # The model of the tests is found here, by the process that trains too.
    sys.path.insert(0, str(Path(__file__).parent))
    from training_runs import request_for

    from pipeline.training import launch
    from pipeline.training.heartbeat import Heartbeat
    from pipeline.training.process_group import process_group

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    records, folder, checkpoints, settings = json.loads(sys.argv[1])
    request = request_for(Path(records), Path(folder), checkpoints=Path(checkpoints), **settings)
    member = process_group(request.settings)
    heartbeat = Heartbeat(Path(folder).parent, member, settings="", on_failure=lambda failure: os._exit(1))
    try:
        Path(folder).mkdir()
        if member.is_chief:
            heartbeat.wait_for_all(60)
            launch.train_in_child(replace(request, group=member), Path(folder), heartbeat)
        else:
            _, content = heartbeat.next_request("", 60)
            launch.follow(content, member, Path(folder), heartbeat)
    except Exception as error:
        heartbeat.leave(is_done=False)
        sys.exit(f"{type(error).__name__}: {error}")
    heartbeat.leave(is_done=True)
