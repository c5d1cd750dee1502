"""Examine the requested device without training. Each function runs in a child process."""

from typing import Any

from pipeline.config.training import TrainSettings
from pipeline.hardware.placement import choose_precision, place
from pipeline.hardware.receipt import write_receipt


def require_device(settings: TrainSettings) -> None:
    """Raise an error unless the device of the settings is there.

    Raises:
        HardwareMismatchError: it is not there.
    """
    place(settings)


def examine(settings: TrainSettings) -> dict[str, Any]:
    """The hardware receipt as JSON data, and the precision that ``auto`` chooses.

    Raises:
        HardwareMismatchError: the device is not there, and ``on_mismatch`` is not ``fallback``.
    """
    placement = place(settings)
    precision = choose_precision(settings.precision, placement)
    receipt = write_receipt(settings, placement, precision)
    return {
        "receipt": receipt.to_json(),
        "precision": precision,
        "device": receipt.effective_device,
        "device_name": receipt.device_name,
        "verified": "verified" if receipt.device_verified else f"NOT verified: {'; '.join(receipt.doubts)}",
    }
