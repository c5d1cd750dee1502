"""The identity of an export names the packages of its formats alone."""

import pytest
from luigi_process import Luigi
from test_reproduce import train_of

from tasks.export import Export

BASE = ["keras", "numpy", "tensorflow"]
LITERT = "ai_edge_litert"


@pytest.mark.parametrize(
    ("source", "formats", "packages"),
    [
        (("folder", "images"), "saved_model", []),
        (("folder", "images"), "onnx,openvino", ["onnx", "onnxruntime", "openvino", "tf2onnx"]),
        (("folder", "images"), "", [LITERT]),
        # LiteRT is no default format of a model with loops.
        (("text", "text.txt"), "", []),
        # The command refuses it. Others, such as clean-stale, go on.
        (("text", "text.txt"), "litert", [LITERT]),
    ],
)
def test_an_export_depends_on_the_packages_of_its_formats_alone(source, formats, packages, tmp_path, request):
    dataset, name = source
    path = request.config.rootpath / "tests" / "golden" / "data" / name
    flags = [f"--Source-dataset={dataset}", f"--Source-path={path}"]
    luigi = Luigi(tmp_path, tmp_path)
    assert luigi.here("tasks", "Source", *flags).returncode == 0
    with train_of([*flags, f"--Export-formats={formats}"], luigi.root):
        identity = Export().identity()
    assert sorted(identity["packages"]) == sorted([*BASE, *packages])
    assert "absent" not in identity["packages"].values()
