"""Device: asks whether a requested accelerator is there before any stage has work to do.

In a process of its own: TensorFlow must not be initialised before Luigi forks its workers, and takes seconds to import.
"""

import json
import logging
import os
import subprocess
import sys
from dataclasses import asdict
from functools import cache

from pipeline.config import TrainSettings
from pipeline.errors import HardwareMismatchError
from tasks.storage import PROJECT_FOLDER

# A TPU is initialised in well under a minute.
_TIMEOUT_SECONDS = 180

_logger = logging.getLogger(__name__)


@cache
def require(settings: TrainSettings) -> None:
    """Go on only where the device of the settings is there; further calls in this process change nothing.

    Raises:
        SystemExit: it is not there, with the exit code of HardwareMismatchError. Luigi would go on after an exception.
    """
    _logger.info("Train: is there a %s?", settings.device)
    try:
        asked = subprocess.run(
            [sys.executable, "-m", "pipeline.hardware"],
            input=json.dumps(asdict(settings)),
            cwd=PROJECT_FOLDER,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        code, answer = asked.returncode, asked.stdout.strip() or asked.stderr.strip()
    except subprocess.TimeoutExpired:
        code = HardwareMismatchError.exit_code
        answer = f"[Train] device: {settings.device} did not answer within {_TIMEOUT_SECONDS} s."
    if code != 0:
        kind = HardwareMismatchError.__name__
        _logger.error("ERROR %s: %s", kind, answer)
        raise SystemExit(code if code == HardwareMismatchError.exit_code else 1)
