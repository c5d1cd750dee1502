"""Metadata files of a folder of shards for TFDS, mlcroissant and dataset search (https://docs.mlcommons.org/croissant).

``tfds.builder_from_directory`` then reads the folder.
"""

import contextlib
import glob
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from pipeline.errors import message
from pipeline.records.features import KEY, LABEL, Feature, FeatureSpec, content_name
from pipeline.sources import Location, SourceInfo

# mlcroissant reads no TFRecord. By the second format it returns the bytes of a file (docs/how-to/read-records.md).
_FORMATS = ["application/x-tfrecord", "text/plain"]
# The context of the specification, without which mlcroissant warns.
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


def write_tfds_metadata(folder: Path, source: SourceInfo, spec: FeatureSpec, shards: Sequence[Mapping]) -> None:
    """Write dataset_info.json, features.json, and the label names or the vocabulary into the folder."""
    lengths, num_bytes = defaultdict(list), Counter()
    for shard in shards:
        lengths[shard["split"]].append(shard["num_records"])
        num_bytes[shard["split"]] += (folder / shard["name"]).stat().st_size
    template = tfds.core.ShardedFileTemplate(
        data_dir=str(folder), dataset_name=source.dataset.split("/")[0], filetype_suffix="tfrecord"
    )
    tfds.folder_dataset.write_metadata(
        data_dir=str(folder),
        features=tfds.features.FeaturesDict({name: _connector(name, spec[name], source) for name in sorted(spec)}),
        split_infos=[
            tfds.core.SplitInfo(
                name=split, shard_lengths=lengths[split], num_bytes=num_bytes[split], filename_template=template
            )
            for split in lengths
        ],
        version=source.version if source.version.count(".") == 2 else f"{source.version}.0.0",
        supervised_keys=(content_name(spec), LABEL) if LABEL in spec else None,
        check_data=False,
    )
    if LABEL not in spec:
        # The tokens of a text, in order.
        (folder / "vocabulary.json").write_text(json.dumps(source.label_names), encoding="utf-8")


def _connector(name: str, feature: Feature, source: SourceInfo) -> tfds.features.FeatureConnector:
    if name == KEY:
        return tfds.features.Text()
    if feature.is_number:
        return tfds.features.ClassLabel(names=list(source.label_names))
    if feature.encoding == "raw":
        return tfds.features.Tensor(shape=feature.shape, dtype=np.dtype(feature.dtype), encoding="bytes")
    # Without a format, TFDS detects it from the content of each image.
    encoding = None if feature.encoding == "image" else feature.encoding
    return tfds.features.Image(shape=feature.shape, dtype=np.uint8, encoding_format=encoding)


def write_croissant(
    folder: Path, source: SourceInfo, spec: FeatureSpec, shards: Sequence[Mapping], location: Location
) -> None:
    """Write croissant.json into the folder. A split has a record set of its shards, and labels have one of names."""
    file_sets, record_sets = [], []
    for split, prefix in {shard["split"]: shard["name"].rpartition(".tfrecord-")[0] for shard in shards}.items():
        name, files = f"{split}-shards", f"{glob.escape(prefix)}.tfrecord-*"
        file_sets.append({"@type": "cr:FileSet", "@id": name, "encodingFormat": _FORMATS, "includes": files})
        source_of = {"fileSet": {"@id": name}}
        fields = {one: {"source": source_of | {"extract": {"fileProperty": one}}} for one in ("filename", "content")}
        record_sets.append(_record_set(split, fields))
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
    (folder / "croissant.json").write_text(f"{text}\n", encoding="utf-8")


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
