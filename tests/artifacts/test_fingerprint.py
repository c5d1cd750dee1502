import ast
import itertools
import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.artifacts import code_digest as subject
from pipeline.artifacts.code_digest import MATCHED_BY_TEXT, _canonical, read_module
from pipeline.artifacts.fingerprint import code_digests, fingerprint, package_versions


def setup_module() -> None:
    global tasks
    import tasks


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=50)
@given(st.dictionaries(st.text(), plain, max_size=5))
def test_order_of_settings_does_not_matter(identity):
    assert fingerprint(dict(reversed(identity.items()))) == fingerprint(identity)


@settings(max_examples=50)
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
    (folder / "leaf.py").write_text("from pipeline.settings import X\n\nLIMIT = 3\n\n\ndef f(x):\n    return x + 1\n")
    (folder / "config.py").write_text("X = 1\n")
    (folder / "other.py").write_text("Y = 1\n")
    monkeypatch.setattr(subject, "module_path", lambda name: tmp_path.joinpath(*name.split(".")).with_suffix(".py"))
    return folder


def digests() -> dict:
    read_module.cache_clear()
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
    read_module.cache_clear()
    assert {"pipeline.shards.plan", "pipeline.records.example", "pipeline.sources.tfds"} <= code_digests(
        "pipeline.shards.job"
    ).keys()
    assert {"pipeline.streams.tf_data", "pipeline.models.build", "pipeline.hardware"} <= code_digests(
        "pipeline.training.train"
    ).keys()
    assert "pipeline.shards.job" not in code_digests("pipeline.training.train")
    assert {"pipeline.report.sections.image_values", "pipeline.report.data.labels"} <= code_digests(
        "pipeline.report"
    ).keys()
    assert "pipeline.report.sections" not in code_digests("pipeline.runs.export")
    assert any(name.startswith("templates/") for name in code_digests("pipeline.report")["pipeline.report"])


@pytest.fixture
def copied_pipeline(tmp_path, monkeypatch) -> Path:
    """A copy of the project's own package, which the digests are then taken of."""
    folder = tmp_path / "pipeline"
    shutil.copytree(Path(subject.__file__).parents[1], folder, ignore=shutil.ignore_patterns("__pycache__"))

    def module_path(module: str) -> Path:
        base = tmp_path.joinpath(*module.split("."))
        return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")

    monkeypatch.setattr(subject, "module_path", module_path)
    return folder


STAGES = ("Source", "Records", "Train", "Report")


def digests_of(stage: str) -> dict[str, dict]:
    """Return the digests of all code that the identity of the stage's artifact covers."""
    return code_digests(getattr(tasks, stage).entry)


def stage_digests() -> dict[str, dict]:
    """Return each stage with these digests, read anew."""
    read_module.cache_clear()
    return {stage: digests_of(stage) for stage in STAGES}


def messages(tree: ast.AST) -> list[ast.expr]:
    """The first text of each log line, of each error that is raised, and of each refusal of a setting."""
    found = []
    for node in ast.walk(tree):
        call = node.exc if isinstance(node, ast.Raise) else getattr(node, "value", None)
        if not isinstance(node, ast.Raise | ast.Expr) or not isinstance(call, ast.Call):
            continue
        function = ast.unparse(call.func)
        if isinstance(node, ast.Raise):
            is_message = function not in MATCHED_BY_TEXT
        else:
            is_message = function.startswith("_logger.") or function == "refuse"
        # What an f-string calls counts: it may do more than give a text.
        plain = [one for one in call.args if not any(isinstance(part, ast.Call) for part in ast.walk(one))]
        texts = [one for one in plain if isinstance(one, ast.JoinedStr) or type(getattr(one, "value", None)) is str]
        found += texts[:1] if is_message else []
    return found


def integers(tree: ast.AST) -> list[ast.expr]:
    """Those of statements that compute: in a message a number is left out with it."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    computing = [node for one in functions for node in ast.walk(one) if isinstance(node, ast.Assign | ast.Return)]
    return [node for one in computing for node in ast.walk(one) if type(getattr(node, "value", None)) is int]


def replace(path: Path, nodes: list[ast.expr], new: str) -> None:
    """Put ``new`` where ``nodes`` are in the file's text."""
    lines = path.read_bytes().splitlines(keepends=True)
    starts = [0, *itertools.accumulate(map(len, lines))]
    content = b"".join(lines)
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        content = content[:start] + new.encode() + content[end:]
    path.write_bytes(content)


def test_a_reworded_message_keeps_every_stage_fresh_and_a_changed_number_does_not(copied_pipeline):
    before = stage_digests()
    paths = {stage: {subject.module_path(module) for module in before[stage]} for stage in STAGES}
    spoken = {path: found for path in set().union(*paths.values()) if (found := messages(ast.parse(path.read_text())))}
    for path, found in spoken.items():
        replace(path, found, '"Reworded."')
    assert stage_digests() == before
    for stage in STAGES:
        path, numbers = next(
            (path, found)
            for path in sorted(paths[stage] & spoken.keys())
            if (found := integers(ast.parse(path.read_text())))
        )
        text = path.read_text()
        replace(path, numbers[:1], "4711")
        read_module.cache_clear()
        assert digests_of(stage) != before[stage], stage
        path.write_text(text)


# Texts of several words that are no sentences.
NAMES_AND_PATTERNS = {
    "Wait for all blocks",
    "Wait for all shards",
    "Channel closed prematurely",
    "TPU v2 or v3",
    "Google API client",
    "built without CUDA",
    "no TPU devices",
    "TensorFlow has no TPU support",
    "TensorFlow sees none",
    " is unreachable (",
    "unexpected end of data",
    "no regular file",
    *("by the sea", "in the morning", "under the bridge", "before the storm", "without a word"),
}


def texts_in(canonical: object) -> set[str]:
    """The string literals in the plain data that a digest is taken of."""
    if isinstance(canonical, dict):
        return set().union(*map(texts_in, canonical.values()))
    if isinstance(canonical, list):
        if canonical[:2] == ["Constant", "str"]:
            return {ast.literal_eval(canonical[2])}
        return set().union(*map(texts_in, canonical))
    return set()


def sentences(module: str) -> set[str]:
    """Texts of three words or more that the digest of ``module`` covers, regular expressions left out."""
    texts = texts_in(_canonical(ast.parse(subject.module_path(module).read_text(encoding="utf-8"))))
    return {text for text in texts if text.count(" ") >= 2 and "|" not in text}


@pytest.mark.parametrize("stage", ["Source", "Records", "Train"])
def test_no_sentence_is_left_in_the_code_that_an_identity_covers(stage):
    covered = digests_of(stage)
    found = {module: left for module in covered if (left := sentences(module) - NAMES_AND_PATTERNS)}
    assert found == {}


def test_versions_come_without_an_import():
    versions = package_versions(["numpy", "tensorflow", "no-such-package"])
    assert versions["numpy"][0].isdigit()
    assert versions["tensorflow"][0].isdigit()
    assert versions["no-such-package"] == "absent"
