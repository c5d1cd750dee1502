"""Minimum of a first training step: import the framework, build the model, and run one execution.

python -m benchmarks.baselines.first_step <folder of the records>
"""

import sys
from pathlib import Path

import tensorflow as tf

from benchmarks import BASELINE
from benchmarks.baselines import FIRST_STEP_DONE
from pipeline.artifacts.manifest import read_manifest
from pipeline.hardware.placement import place
from pipeline.settings.training import TrainSettings
from pipeline.training.model import STEPS_PER_EXECUTION, compiled_model

if __name__ == "__main__":
    settings = TrainSettings(**BASELINE, device="cpu")
    model = compiled_model(read_manifest(Path(sys.argv[1])), settings, place(settings), STEPS_PER_EXECUTION)
    size = settings.global_batch_size
    batch = tf.zeros([size, *model.input_shape[1:]], model.inputs[0].dtype), tf.zeros([size], tf.int64)
    model.fit(tf.data.Dataset.from_tensors(batch).repeat(STEPS_PER_EXECUTION), verbose=0)
    print(FIRST_STEP_DONE, flush=True)
