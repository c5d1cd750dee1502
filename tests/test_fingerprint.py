import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.artefacts import fingerprint as subject
from pipeline.artefacts.fingerprint import code_digests, fingerprint, package_versions

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), plain, max_size=5))
def test_order_of_settings_does_not_matter(identity):
    assert fingerprint(dict(reversed(identity.items()))) == fingerprint(identity)


@given(st.dictionaries(st.text(), plain, max_size=3), st.dictionaries(st.text(), plain, max_size=3))
def test_different_identities_differ(left, right):
    same = json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)
    assert (fingerprint(left) == fingerprint(right)) is same


def test_nan_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        fingerprint({"rate": float("nan")})


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """A stand-in for the project's package: stage.py imports leaf.py; other.py is imported by nobody."""
    folder = tmp_path / "pipeline"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    stage = '"""Doc."""\nfrom pipeline import leaf\n\n\ndef run(x):\n    """Doc."""\n    return leaf.f(x)\n'
    (folder / "stage.py").write_text(stage)
    (folder / "leaf.py").write_text("from pipeline.config import X\n\nLIMIT = 3\n\n\ndef f(x):\n    return x + 1\n")
    (folder / "config.py").write_text("X = 1\n")
    (folder / "other.py").write_text("Y = 1\n")
    monkeypatch.setattr(subject, "_module_path", lambda name: tmp_path.joinpath(*name.split(".")).with_suffix(".py"))
    return folder


def digests() -> dict:
    code_digests.cache_clear()
    return code_digests("pipeline.stage")


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_only_modules_reached_by_imports_count(package):
    assert set(digests()) == {"pipeline.stage", "pipeline.leaf"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Doc."""\nfrom', '"""Another."""\nfrom'),
        ('    """Doc."""\n', ""),
        ("    return leaf.f(x)", "    # Because.\n    return leaf.f( x )"),
    ],
)
def test_comments_docstrings_and_layout_leave_the_digests(package, old, new):
    before = digests()
    edit(package / "stage.py", old, new)
    assert digests() == before


def test_a_changed_function_is_named(package):
    before = digests()
    edit(package / "leaf.py", "x + 1", "x + 2")
    after = digests()
    assert after["pipeline.stage"] == before["pipeline.stage"]
    left, right = after["pipeline.leaf"], before["pipeline.leaf"]
    assert {name for name in left if left[name] != right[name]} == {"f"}


def test_a_changed_constant_counts(package):
    before = digests()
    edit(package / "leaf.py", "LIMIT = 3", "LIMIT = 4")
    assert digests() != before


def test_the_real_stages_reach_what_they_use():
    code_digests.cache_clear()
    assert {"pipeline.shards", "pipeline.records", "pipeline.sources.tfds"} <= code_digests("pipeline.shards").keys()
    assert {"pipeline.stream", "pipeline.models", "pipeline.hardware"} <= code_digests("pipeline.training").keys()
    assert "pipeline.shards" not in code_digests("pipeline.training")
    assert any(name.startswith("templates/") for name in code_digests("pipeline.report")["pipeline.report"])


def test_versions_come_without_an_import():
    versions = package_versions(["numpy", "tensorflow", "no-such-package"])
    assert versions["numpy"][0].isdigit()
    assert versions["tensorflow"][0].isdigit()
    assert versions["no-such-package"] == "absent"
