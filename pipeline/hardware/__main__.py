"""``python -m pipeline.hardware``: whether the device of some settings is there.

Reads the fields of TrainSettings as a JSON object from standard input. Ends with 0 where the device is there, else
with the error's kind and message and its exit code; that of HardwareMismatchError alone says that the device is not.
A process of its own, so that the one that asks keeps TensorFlow out: it may fork, and a TPU that was initialised cannot
be given back.
"""

import json
import sys

from pipeline.config.training import TrainSettings
from pipeline.errors import PipelineError
from pipeline.hardware.placement import place

try:
    place(TrainSettings(**json.load(sys.stdin)))
except PipelineError as error:
    print(f"{type(error).__name__}: {error}")
    sys.exit(error.exit_code)
