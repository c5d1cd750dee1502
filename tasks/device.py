"""Check that a requested accelerator is there, before any stage has work to do.

A process of its own asks the device, because a TPU that was initialized cannot be given back.
"""

import logging
from functools import cache

from pipeline import machine
from pipeline.config.training import TrainSettings
from pipeline.errors import HardwareMismatchError, PipelineError, TimeLimitError
from pipeline.hardware.backend import choose_backend
from pipeline.hardware.mismatch import explain
from pipeline.stage_process import in_child
from tasks.process import console
from tasks.process.interrupt import time_limit

# A TPU is initialized in well under a minute.
_TIMEOUT_SECONDS = 180
# The settings that choose the device.
_NAMES = ("backend", "device", "tpu_address", "tpu_zone", "tpu_project")

_logger = logging.getLogger(__name__)


def require(settings: TrainSettings) -> None:
    """Continue only if the device of the settings is there. Otherwise end the process with the error's exit code."""
    with console.leaving_on_errors():
        if error := _error(settings):
            raise error


def is_there(settings: TrainSettings) -> bool:
    """Whether the device of the settings is there, whatever ``on_mismatch`` would do about it."""
    error = _error(settings)
    if error and not isinstance(error, HardwareMismatchError):
        # It cannot be asked for, which says nothing about the device.
        require(settings)
    return error is None


def _error(settings: TrainSettings) -> PipelineError | None:
    if settings.device == "gpu" and not machine.has_gpu_driver():
        # TensorFlow takes ten seconds to find the same.
        return explain("gpu", RuntimeError("no driver"))
    return _ask(choose_backend(settings), *(getattr(settings, name) for name in _NAMES[1:]))


@cache
def _ask(*chosen: str) -> PipelineError | None:
    """The error of the process that asks the device. It asks once, because this process may use the device later."""
    settings = TrainSettings(**dict(zip(_NAMES, chosen, strict=True)))
    _logger.info("Train: is there a %s?", "TPU or GPU" if settings.device == "auto" else settings.device)
    how = {"backend": settings.backend, "is_kept": False, "may_run_here": False}
    try:
        with time_limit("Train", _TIMEOUT_SECONDS):
            in_child("pipeline.hardware.receipt:require_device", {"settings": settings}, **how)
    except TimeLimitError:
        message = f"[Train] device: {settings.device} did not answer within {_TIMEOUT_SECONDS} s."
        return HardwareMismatchError(message, {"device": settings.device, "cause": message, "remedy": ""})
    except PipelineError as error:
        return error
    except Exception as error:
        _logger.exception("ERROR: the process that asks for the device failed")
        raise SystemExit(1) from error
    return None
