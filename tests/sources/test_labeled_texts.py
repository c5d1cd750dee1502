"""Texts with labels as a source: folders and tables, their bytes in the records, and what is refused or left out."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import sources
from pipeline.errors import DamagedArtifactError, SettingsError
from pipeline.settings.data import RecordsSettings, SourceSettings
from pipeline.sources.file_source import kind_at
from pipeline.sources.files import UndecodableError
from pipeline.sources.reading import as_rows, count_longer
from pipeline.sources.source import Location, kind_of, read_batches
from pipeline.sources.text import cleaned

REVIEWS = [("a fine day", "good"), ("café, très bien", "good"), ("dull\nand long", "bad"), ("never again", "bad")]


def write_folder(top: Path, rows=REVIEWS, split: str = "") -> Path:
    """A file per text below folders of labels."""
    for number, (text, label) in enumerate(rows):
        path = top / "reviews" / split / label / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return top / "reviews"


def write_table(top: Path, ending: str, rows=REVIEWS, header=("text", "label")) -> Path:
    """A row per text."""
    path = top / f"reviews.{ending}"
    table = pa.table({name: [row[at] for row in rows] for at, name in enumerate(header)})
    if ending == "parquet":
        pa.parquet.write_table(table, path)
        return path
    lines = ("\t" if ending == "tsv" else ",").join
    cells = [header, *([f'"{cell}"' for cell in row] for row in rows)]
    path.write_text("".join(f"{lines(row)}\n" for row in cells), encoding="utf-8")
    return path


def resolved(path: Path, artifact: Path, **settings) -> sources.SourceInfo:
    artifact.mkdir(exist_ok=True)
    return sources.resolve(SourceSettings(**{"dataset": kind_at(str(path)), "path": str(path), **settings}), artifact)


def read(info: sources.SourceInfo, artifact: Path, split="train", **settings) -> list[tuple[bytes, str]]:
    """The stored bytes without padding, and the label, of all examples of a split."""
    info = info.cut(RecordsSettings(**settings))
    location = Location(listing=str(artifact / "examples.json"), artifact=str(artifact))
    (columns,) = read_batches(info, location, None, split, 0, info.num_examples[split])
    texts = [row.tobytes().rstrip(b"\0") for row in columns["text"]]
    return [*zip(texts, np.array(info.label_names)[columns["label"]].tolist(), strict=True)]


@pytest.mark.parametrize("ending", ["", "csv", "tsv", "parquet"])
def test_texts_and_labels_of_every_layout_are_read_back(ending, tmp_path):
    path = write_table(tmp_path, ending) if ending else write_folder(tmp_path)
    info = resolved(path, tmp_path / "source")
    assert (info.origin, info.problem) == ("text_table" if ending else "text_folder", "text_classification")
    assert (info.label_names, info.num_examples, info.test_share) == (("bad", "good"), {"train": 4}, 0.2)
    assert sorted(read(info, tmp_path / "source")) == sorted((text.encode(), label) for text, label in REVIEWS)
    assert info == sources.SourceInfo.from_json(info.to_json())


def test_folders_of_splits_divide_the_texts(tmp_path):
    write_folder(tmp_path, split="train")
    path = write_folder(tmp_path, REVIEWS[1:3], split="test")
    info = resolved(path, tmp_path / "source")
    assert (info.num_examples, info.test_share) == ({"train": 4, "test": 2}, 0.0)
    assert sorted(read(info, tmp_path / "source", "test")) == sorted((t.encode(), label) for t, label in REVIEWS[1:3])


def test_a_table_may_name_the_split_and_other_columns(tmp_path):
    rows = [(label, text, split) for (text, label), split in zip(REVIEWS, ("train", "dev") * 2, strict=True)]
    path = write_table(tmp_path, "csv", rows, ("verdict", "Review", "part"))
    columns = {"label_column": "verdict", "split_column": "part"}
    assert resolved(path, tmp_path / "source", **columns).num_examples == {"train": 2, "validation": 2}


def test_the_longest_text_sets_the_length_up_to_that_of_the_settings(tmp_path):
    info = resolved(write_folder(tmp_path), tmp_path / "source")
    whole, cut = info.cut(RecordsSettings()), info.cut(RecordsSettings(text_length=16))
    assert (whole.features["text"].shape, cut.features["text"].shape) == ((17,), (16,))
    assert [count_longer(one, tmp_path / "source") for one in (whole, cut)] == [0, 1]
    # The last character has two bytes, and the cut would leave one of them.
    texts = [("é" * 8 + "x", "a"), ("x" + "é" * 9, "b"), ("y", "a")]
    info = resolved(write_table(tmp_path, "csv", texts), tmp_path / "other")
    found = [text.decode() for text, _ in read(info, tmp_path / "other", text_length=16)]
    assert found == ["é" * 8, "x" + "é" * 7, "y"]


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), max_size=5), st.integers(1, 40)
)
def test_rows_contain_the_longest_beginning_of_whole_characters(texts, length):
    rows = as_rows([text.encode() for text in texts], length)
    assert rows.shape == (len(texts), length)
    for row, text in zip(rows, texts, strict=True):
        beginnings = [text[:size].encode() for size in range(len(text) + 1)]
        longest = max((one for one in beginnings if len(one) <= length), key=len)
        assert row.tobytes() == longest.ljust(length, b"\0")


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_marks_line_ends_and_white_space_around_a_text_do_not_matter(text):
    try:
        expected = cleaned(text.encode())
    except UndecodableError:
        assert not text.strip("\N{ZERO WIDTH NO-BREAK SPACE} \t\n\r\v\f")
        return
    for other in (text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n"), f"\n {text}\t\r\n"):
        assert cleaned(other.encode()) == expected == cleaned(b"\xef\xbb\xbf" + text.encode())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty text"),
        (b"caf\xe9", "not UTF-8 text"),
        ("wide".encode("utf-16"), "not UTF-8 text"),
        (b"a\0b", "a text with zero bytes"),
    ],
)
def test_a_bad_text_ends_the_run_or_is_skipped(content, reason, tmp_path):
    path = write_folder(tmp_path, [*REVIEWS, (content, "bad")])
    with pytest.raises(DamagedArtifactError, match=f"1 of 5 texts cannot be used(?s:.*)bad/4.txt: {reason}"):
        resolved(path, tmp_path / "source")
    info = resolved(path, tmp_path / "source", on_bad_example="skip", max_bad_share=0.2)
    assert (info.num_examples, info.skipped) == ({"train": 4}, {reason: 1})
    assert sorted(read(info, tmp_path / "source")) == sorted((text.encode(), label) for text, label in REVIEWS)


def test_an_empty_cell_is_a_bad_text(tmp_path):
    path = write_table(tmp_path, "csv", [*REVIEWS, ("  ", "bad")])
    with pytest.raises(DamagedArtifactError, match="row 5: empty text"):
        resolved(path, tmp_path / "source")


@pytest.mark.parametrize(
    ("rows", "header", "settings", "message"),
    [
        ([("x", "a"), ("y", "a")], ("text", "label"), {}, "expected at least two labels"),
        (REVIEWS, ("text", "verdict"), {}, r"label_column: expected one column .* has text, verdict"),
        (
            REVIEWS,
            ("words", "label"),
            {"dataset": "text_table"},
            r"text_column: expected one column .* has words, label",
        ),
        (REVIEWS, ("words", "label"), {}, r"path_column: .* The table has words, label\."),
        (
            [*REVIEWS, ("x", "")],
            ("text", "label"),
            {},
            r"a text, a label and a split .* row 5 \('row 5', '', 'train'\)",
        ),
    ],
)
def test_a_table_without_texts_and_labels_is_refused(rows, header, settings, message, tmp_path):
    with pytest.raises(SettingsError, match=message):
        resolved(write_table(tmp_path, "csv", rows, header), tmp_path / "source", **settings)


def test_wrong_kinds_of_paths_are_refused(tmp_path):
    folder, table = write_folder(tmp_path), write_table(tmp_path, "csv")
    with pytest.raises(SettingsError, match=r"expected a folder of texts.*It is a file\."):
        resolved(table, tmp_path / "source", dataset="text_folder")
    with pytest.raises(SettingsError, match=r"expected a table of texts.*It is a folder\."):
        resolved(folder, tmp_path / "source", dataset="text_table")
    with pytest.raises(SettingsError, match="no placeholder has texts with labels"):
        SourceSettings(dataset="text_folder", path=str(folder), origin="placeholder").check()


def test_a_changed_text_is_named_and_a_longer_cell_is_read(tmp_path):
    path = write_folder(tmp_path)
    info = resolved(path, tmp_path / "source")
    kind = kind_of(SourceSettings(dataset="text_folder", path=str(path)))
    assert [*kind.changed(info.to_json(), tmp_path / "source")] == []
    (path / "bad" / "2.txt").write_text("short")
    assert [*kind.changed(info.to_json(), tmp_path / "source")] == ["bad/2.txt has changed"]
    table = write_table(tmp_path, "csv", [("x" * 200_000, "a"), ("y", "b")])
    assert resolved(table, tmp_path / "other").features["text"].shape == (200_000,)


@pytest.mark.parametrize("ending", ["texts", "ends"])
def test_texts_that_are_not_there_as_they_were_are_damaged(ending, tmp_path):
    info = resolved(write_folder(tmp_path), tmp_path / "source")
    os.truncate(tmp_path / "source" / f"train.{ending}", 8)
    with pytest.raises(DamagedArtifactError, match=r"expected \d+ bytes, got 8\."):
        read(info, tmp_path / "source")


def layout(*paths: str):
    def write(top: Path) -> Path:
        for path in paths:
            (top / "texts" / path).parent.mkdir(parents=True, exist_ok=True)
            (top / "texts" / path).write_text("to be")
        return top / "texts"

    return write


LABELED = ("neg/1.txt", "neg/2.txt", "pos/1.txt", "pos/2")


@pytest.mark.parametrize(
    ("write", "kind"),
    [
        (layout(*LABELED), "text_folder"),
        (layout(*(f"train/{one}" for one in LABELED), *(f"test/{one}" for one in LABELED), "README"), "text_folder"),
        # One file per folder, one folder, or files beside the folders are a text in parts.
        (layout("one/1.txt", "two/2.txt"), "text"),
        (layout("plays/1.txt", "plays/2.txt"), "text"),
        (layout(*LABELED, "act 1.txt", "act 2.txt"), "text"),
        (layout("train/1.txt", "train/2.txt", "test/1.txt", "test/2.txt"), "text"),
        (lambda top: write_table(top, "csv"), "text_table"),
        (lambda top: write_table(top, "parquet", header=("sentence", "label")), "text_table"),
        (lambda top: write_table(top, "tsv", header=("words", "label")), "table"),
        (lambda top: write_table(top, "csv", [("a.png", "cat", "x")], ("file", "label", "comment")), "table"),
    ],
)
def test_labels_make_a_text_an_example(write, kind, tmp_path):
    assert kind_at(str(write(tmp_path))) == kind
