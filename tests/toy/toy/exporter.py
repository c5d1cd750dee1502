"""An exporter: the weights as arrays of NumPy, which computes the model."""

import numpy as np

from pipeline.runs.exporters import Exporter

ARRAYS = Exporter("NumPy arrays", "arrays.npz", ("digit_sum",), "toy.exporter")


def write(job, path):
    names = ("w1", "b1", "w2", "b2")
    np.savez(path, **dict(zip(names, job.model.get_weights(), strict=True)))


def load(path):
    arrays = dict(np.load(path))

    def predict(images):
        hidden = images.reshape(len(images), -1).astype(np.float32) / 255 @ arrays["w1"] + arrays["b1"]
        return np.maximum(hidden, 0) @ arrays["w2"] + arrays["b2"]

    return predict
