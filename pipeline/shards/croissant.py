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
    prefixes = {shard["split"]: shard["name"].rpartition(".tfrecord-")[0] for shard in shards}
    file_sets = [
        {
            "@type": "cr:FileSet",
            "@id": f"{split}-shards",
            "encodingFormat": _FORMATS,
            "includes": f"{glob.escape(prefix)}.tfrecord-*",
        }
        for split, prefix in prefixes.items()
    ]
    record_sets = [
        _record_set(
            split,
            {
                name: {"source": {"fileSet": {"@id": f"{split}-shards"}, "extract": {"fileProperty": name}}}
                for name in ("filename", "content")
            },
        )
        for split in prefixes
    ]
    if LABEL in spec:
        rows = [{"labels/index": index, "labels/name": name} for index, name in enumerate(source.label_names)]
        record_sets.append(_record_set("labels", {"index": {"dataType": "sc:Integer"}, "name": {}}) | {"data": rows})
    document = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": source.dataset,
        "description": _description(sum(shard["num_records"] for shard in shards), ", ".join(spec)),
        "version": source.version,
        **_of_publisher(source, location),
        "distribution": file_sets,
        "recordSet": record_sets,
    }
    # A web page may contain the document in a script element.
    text = json.dumps(document, indent=1).replace("<", r"\u003c")
    (folder / CROISSANT_NAME).write_text(f"{text}\n", encoding="utf-8")


def _record_set(name: str, fields: Mapping[str, Mapping]) -> dict[str, Any]:
    described = [
        {"@type": "cr:Field", "@id": f"{name}/{field}", "dataType": "sc:Text", **about}
        for field, about in fields.items()
    ]
    return {"@type": "cr:RecordSet", "@id": name, "name": name, "field": described}


@message
def _description(num_examples: int, features: str) -> str:
    return f"TFRecord files of {num_examples} examples of tf.train.Example, with the features {features}."


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
