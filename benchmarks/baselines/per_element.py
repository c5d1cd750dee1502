"""The obvious Beam job for a folder of images: an element a file, Beam's own WriteToTFRecord.

As in Beam's and TensorFlow's tutorials; images are decoded and stored raw, as ours are where they are small. Which
split an image belongs to is not asked.

    python -m benchmarks.baselines.per_element FOLDER OUT
"""

import json
import os
import resource
import sys
import time
from pathlib import Path

import apache_beam as beam
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions


def write(folder: Path, out: Path, num_shards: int = 20) -> None:
    """Read, decode, serialize and write every image below ``folder/<label>``."""
    labels = {name: number for number, name in enumerate(sorted(os.listdir(folder)))}
    paths = [str(path) for path in folder.glob("*/*")]

    def serialize(path: str) -> bytes:
        image = tf.io.decode_image(Path(path).read_bytes(), channels=3, expand_animations=False).numpy()
        feature = {
            "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[labels[Path(path).parent.name]])),
        }
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    with beam.Pipeline(runner="FnApiRunner", options=PipelineOptions([])) as pipeline:
        (
            pipeline
            | "Paths" >> beam.Create(paths)  # path
            | "Spread" >> beam.Reshuffle()  # path
            | "Serialize" >> beam.Map(serialize)  # a serialized Example
            | "Write" >> beam.io.WriteToTFRecord(str(out / "images"), num_shards=num_shards)  # a file's name
        )


if __name__ == "__main__":
    started = time.perf_counter()
    write(Path(sys.argv[1]), Path(sys.argv[2]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": round(time.perf_counter() - started, 2), "peak_bytes": peak}))
