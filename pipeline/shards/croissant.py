"""Croissant metadata of a folder of shards, for dataset search and mlcroissant (https://docs.mlcommons.org/croissant)."""

import contextlib
import glob
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import message
from pipeline.records.features import LABEL, FeatureSpec
from pipeline.sources import Location, SourceInfo

CROISSANT_NAME = "croissant.json"
# mlcroissant reads no TFRecord. By the second format it returns the bytes of a file (docs/how-to/read-records.md).
_FORMATS = ["application/x-tfrecord", "text/plain"]
# The context of the specification.
_TERMS = (
    "citeAs|column|equivalentProperty|extract|field|fileProperty|fileObject|fileSet|format|includes|isLiveDataset|"
    "jsonPath|key|md5|parentField|path|recordSet|references|regex|repeated|replace|samplingRate|separator|source|"
    "subField|transform"
)
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{term: f"cr:{term}" for term in _TERMS.split("|")},
}


def write_croissant(
    folder: Path, source: SourceInfo, spec: FeatureSpec, shards: Sequence[Mapping], location: Location
) -> None:
    """Write croissant.json into the folder. A split has a record set of its shards, and labels have one of names."""
    examples, prefixes = {}, {}
    for shard in shards:
        split = shard["split"]
        examples[split] = examples.get(split, 0) + shard["num_records"]
        prefixes[split] = shard["name"].rpartition(".tfrecord-")[0]
    document = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": source.dataset,
        "description": _description(", ".join(spec), sum(examples.values())),
        "version": source.version,
        **_of_publisher(source, location),
        "distribution": [
            {
                "@type": "cr:FileSet",
                "@id": f"{split}-shards",
                "encodingFormat": _FORMATS,
                "includes": f"{glob.escape(prefix)}.tfrecord-*",
            }
            for split, prefix in prefixes.items()
        ],
        "recordSet": [_shards_of(split, count) for split, count in examples.items()],
    }
    if LABEL in spec:
        document["recordSet"].append(_labels(source.label_names))
    text = json.dumps(document, indent=1)
    # A web page may contain the document in a script element.
    (folder / CROISSANT_NAME).write_text(text.replace("<", r"\u003c") + "\n", encoding="utf-8")


def _of_publisher(source: SourceInfo, location: Location) -> dict[str, Any]:
    """Citation, license and page of a dataset of TFDS, if its metadata have them and can be read."""
    path = Path(location.tfds_data_dir, source.prepared_as, "dataset_info.json")
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
        facts = json.loads(path.read_text(encoding="utf-8")) if source.prepared_as else {}
        known = {
            "citeAs": facts.get("citation"),
            "license": facts.get("redistributionInfo", {}).get("license"),
            "url": next(iter(facts.get("location", {}).get("urls", ())), None),
        }
        return {name: value for name, value in known.items() if value}
    return {}


def _shards_of(split: str, num_examples: int) -> dict[str, Any]:
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"{split}/{name}",
            "dataType": "sc:Text",
            "source": {"fileSet": {"@id": f"{split}-shards"}, "extract": {"fileProperty": name}},
        }
        for name in ("filename", "content")
    ]
    described = {"@id": split, "name": split, "description": _description(split, num_examples)}
    return {"@type": "cr:RecordSet", **described, "field": fields}


@message
def _description(content: str, num_examples: int) -> str:
    return f"TFRecord files of {num_examples} examples of tf.train.Example: {content}"


def _labels(names: Sequence[str]) -> dict[str, Any]:
    fields = [("labels/index", "sc:Integer"), ("labels/name", "sc:Text")]
    return {
        "@type": "cr:RecordSet",
        "@id": "labels",
        "name": "labels",
        "key": {"@id": "labels/index"},
        "field": [{"@type": "cr:Field", "@id": name, "dataType": kind} for name, kind in fields],
        "data": [{"labels/index": index, "labels/name": name} for index, name in enumerate(names)],
    }
