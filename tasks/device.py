"""Device: asks whether a requested accelerator is there, before any stage has work to do.

In a process of its own: TensorFlow must not be initialised before Luigi forks its workers, and takes seconds to import.
"""

import json
import logging
import os
import subprocess
import sys
from functools import cache

from pipeline import machine
from pipeline.config.training import TrainSettings
from pipeline.errors import HardwareMismatchError
from pipeline.hardware.backend import choose_backend
from pipeline.hardware.mismatch import explain
from tasks.storage import PROJECT_FOLDER

# A TPU is initialised in well under a minute.
_TIMEOUT_SECONDS = 180
_ABSENT = HardwareMismatchError.exit_code

_logger = logging.getLogger(__name__)


def require(settings: TrainSettings) -> None:
    """Go on only where the device of the settings is there.

    Raises:
        SystemExit: it is not there, with the exit code of HardwareMismatchError, or could not be asked for. Luigi would
            go on after an exception.
    """
    code, answer = _ask_for(settings)
    if code != 0:
        _leave(code, answer)


def is_there(settings: TrainSettings) -> bool:
    """Whether the device of the settings is there, whatever ``on_mismatch`` would do about it.

    Raises:
        SystemExit: it could not be asked for; that says nothing about the device.
    """
    code, answer = _ask_for(settings)
    if code not in (0, _ABSENT):
        _leave(code, answer)
    return code == 0


def _ask_for(settings: TrainSettings) -> tuple[int, str]:
    if settings.device == "gpu" and not machine.has_gpu_driver():
        # TensorFlow takes ten seconds to say the same.
        return _ABSENT, f"{HardwareMismatchError.__name__}: {explain('gpu', RuntimeError('no driver'))}"
    return _ask(
        choose_backend(settings), settings.device, settings.tpu_address, settings.tpu_zone, settings.tpu_project
    )


@cache
def _ask(backend: str, device: str, tpu_address: str, tpu_zone: str, tpu_project: str) -> tuple[int, str]:
    """Exit code and words of the process that asks; once in a process, which may hold the device itself later on."""
    _logger.info("Train: is there a %s?", "TPU or GPU" if device == "auto" else device)
    where = {
        "backend": backend,
        "device": device,
        "tpu_address": tpu_address,
        "tpu_zone": tpu_zone,
        "tpu_project": tpu_project,
    }
    try:
        asked = subprocess.run(
            [sys.executable, "-m", "pipeline.hardware"],
            input=json.dumps(where),
            cwd=PROJECT_FOLDER,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": backend},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        kind = HardwareMismatchError.__name__
        return _ABSENT, f"{kind}: [Train] device: {device} did not answer within {_TIMEOUT_SECONDS} s."
    return asked.returncode, asked.stdout.strip() or asked.stderr.strip()


def _leave(code: int, answer: str) -> None:
    # What asking ends with speaks for itself: a wrong setting or a bug is not called a missing device.
    _logger.error("ERROR %s", answer)
    # Killed by a signal, it ends with a negative one.
    raise SystemExit(code if code > 0 else 1)
