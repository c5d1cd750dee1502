"""A run of a tiny model, and a server of it in a thread."""

import io
import json
import threading
from contextlib import contextmanager

import numpy as np
from PIL import Image
from report_runs import write_run

from pipeline.predict import Job
from pipeline.records.features import ImageForm

# Of a client: no proxy, and time for a busy machine.
ALONE = {"trust_env": False, "timeout": 300}
SHAPE, LABELS = (32, 32, 3), ("dark", "<b>light</b>")
IMAGE = {"shape": SHAPE, "size": 32, "resize": "crop", "encoding": "raw"}
MANIFEST = {"problem": "image_classification", "label_names": LABELS, "image": IMAGE, "source": {"value_range": (0, 1)}}


def write_served_run(folder, manifest=MANIFEST, model="tests.tiny_model:build", evaluation=None, is_watched=False):
    """A run of a tiny model. For images, it knows bright ones from dark ones without having learned it."""
    from pipeline.models.build import build_for_task
    from pipeline.problems import problem_of_records

    task, problem = problem_of_records(manifest).task(manifest), manifest["problem"]
    outputs = "logits" if "classification" in problem else "probabilities"
    facts = {"problem": problem, "outputs": outputs, "precision": "float32", "input_shape": task.input_shape}
    write_run(folder, model=model, **facts)
    (folder / "evaluation.json").write_text(json.dumps(evaluation or {}))
    network = build_for_task(task, model, "float32")
    if "image" in manifest:
        (kernel, bias), signs = network.trainable_variables[1:3], np.array([-9, 9], np.float32)
        network.trainable_variables[0].assign(np.full((3, 3, 3, 4), 1 / 27))
        kernel.assign(np.tile(signs / kernel.shape[0], (kernel.shape[0], 1)))
        bias.assign(-0.4 * signs)
    network.save(folder / "model.keras")
    return Job(str(folder), LABELS, problem, ImageForm.of_manifest(manifest), is_watched=is_watched)


@contextmanager
def serving(model, **limits):
    """The address of a real server in a thread."""
    from pipeline.serve import Service
    from pipeline.serve.server import listening, server_of

    service = Service(model.job, **limits)
    server, listener = server_of(service, model), listening(service)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield service.address.replace(":0", f":{listener.getsockname()[1]}")
    finally:
        server.should_exit = True
        thread.join()


def encoded(level, size=(50, 40), kind="PNG"):
    file = io.BytesIO()
    Image.new("RGB", size, (level,) * 3).save(file, kind)
    return file.getvalue()
