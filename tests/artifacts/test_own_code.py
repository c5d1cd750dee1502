"""The code of a user's own network is part of a run's identity, with what it imports locally and nothing else."""

import sys

import pytest
from own_package import forget, write_package

from pipeline.artifacts.code_digest import read_module
from pipeline.artifacts.fingerprint import code_digests
from pipeline.optional_packages import is_local


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield write_package(tmp_path)
    read_module.cache_clear()


def digests(*modules: str) -> dict:
    read_module.cache_clear()
    return code_digests("pipeline.progress", modules)


def test_local_imports_count_without_being_executed(package):
    found = digests("my_package.networks")
    reached = {f"my_package.{name}" for name in ("networks", "layers", "blocks", "unneeded")}
    assert {name for name in found if name.startswith("my_package")} == {"my_package", *reached}
    assert not [name for name in found if name.startswith("keras")]
    assert "my_package" not in sys.modules


def test_imports_of_the_pipeline_count_as_pipeline_code(package):
    assert {"my_package.recipes", "pipeline.models.training_recipes"} <= digests("my_package.recipes").keys()


@pytest.mark.parametrize(
    ("name", "old", "new", "changed"),
    [
        ("networks", "Dense(num_labels)]", "Dense(num_labels, use_bias=False)]", {"my_package.networks": {"build"}}),
        ("blocks", "strides=2", "strides=3", {"my_package.blocks": {"convolution"}}),
        ("layers", "/ 255", "/ 256", {"my_package.layers": {"Scale"}}),
        ("layers", "import keras\n", "import keras\nSIDE = 1\n", {"my_package.layers": {"<module>"}}),
        ("networks", '"""Logits, of', '"""Other words, of', {}),
        ("elsewhere", "x = 1", "x = 2", {}),
        # It is no Python any more: what imports it fails, what asks does not.
        ("unneeded", "", "def", {"my_package.unneeded": {"<module>"}}),
    ],
)
def test_a_change_is_named_by_module_and_function(package, name, old, new, changed):
    before, path = digests("my_package.networks"), package / f"{name}.py"
    path.write_text(path.read_text().replace(old, new, 1) if old else new)
    after = digests("my_package.networks")
    found = {
        module: {part for part in parts if parts[part] != before[module].get(part)} for module, parts in after.items()
    }
    assert {module: parts for module, parts in found.items() if parts} == changed


def test_installed_packages_are_not_local(package):
    import ast

    import numpy

    assert is_local(package / "networks.py")
    assert not is_local(type(package)(numpy.__file__))
    assert not is_local(type(package)(ast.__file__))
