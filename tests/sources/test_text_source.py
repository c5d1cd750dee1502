"""A text as a source: its vocabulary, its splits, the examples cut from it, and what cannot be one."""

import os
from pathlib import Path

import numpy as np
import pytest

from pipeline import sources
from pipeline.errors import DamagedArtifactError, SettingsError
from pipeline.records.features import Feature
from pipeline.records.vocabulary import BYTES, UnknownCharacterError, Vocabulary
from pipeline.settings.data import RecordsSettings, SourceSettings
from pipeline.shards.splits import split_sizes
from pipeline.sources import Location
from pipeline.sources.source import kind_of


def setup_module() -> None:
    global read_batches
    from pipeline.sources.source import read_batches


TEXT = "To be, or not to be: that is the question.\n" * 20


def asked(path: Path, **changes) -> SourceSettings:
    return SourceSettings(**{"dataset": "text", "path": str(path), **changes})


@pytest.fixture
def write(tmp_path):
    """A function that writes files of a text and says what is asked for."""

    def write(**files: str | bytes) -> SourceSettings:
        for name, content in files.items():
            path = tmp_path / "text" / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return asked(tmp_path / "text")

    return write


def resolved(settings: SourceSettings, folder: Path) -> sources.SourceInfo:
    folder.mkdir(exist_ok=True)
    return sources.resolve(settings, folder)


def read(info: sources.SourceInfo, folder: Path, split: str, start: int, stop: int) -> np.ndarray:
    found = read_batches(info, Location(artifact=str(folder)), None, split, start, stop)
    return np.concatenate([columns["tokens"] for columns in found])


def test_a_file_is_characters_in_the_order_of_their_code_points(write, tmp_path):
    info = resolved(write(a_txt=TEXT), tmp_path / "source")
    assert info.label_names == tuple(sorted(set(TEXT)))
    assert info.num_examples == {"train": len(TEXT)}
    assert (info.origin, info.dataset, info.test_share) == ("text", "text", 0.2)
    assert info == sources.SourceInfo.from_json(info.to_json())


def test_files_are_joined_by_path_and_folders_of_splits_are_splits(write, tmp_path):
    settings = write(train__b_txt="ba", train__a_txt="ab", test__z_txt="aab")
    info = resolved(settings, tmp_path / "source")
    assert info.num_examples == {"train": 4, "test": 3}
    assert info.test_share == 0
    assert (tmp_path / "source" / "train.tokens").read_bytes() == bytes([0, 1, 1, 0])
    assert (tmp_path / "source" / "test.tokens").read_bytes() == bytes([0, 0, 1])


def test_each_character_but_the_first_is_predicted_once(write, tmp_path):
    info = resolved(write(a_txt=TEXT), tmp_path / "source").cut(RecordsSettings(sequence_length=16))
    windows = read(info, tmp_path / "source", "train", 0, info.num_examples["train"])
    tokens = Vocabulary(info.label_names).encode(TEXT)
    assert windows.shape == ((len(TEXT) - 1) // 16, 17)
    np.testing.assert_array_equal(windows[:, 1:].ravel(), tokens[1 : 1 + windows[:, 1:].size])
    np.testing.assert_array_equal(windows[1:, 0], windows[:-1, -1])
    np.testing.assert_array_equal(read(info, tmp_path / "source", "train", 3, 5), windows[3:5])


@pytest.mark.parametrize("name", ["tokens", "notes", "text"])
def test_a_sequence_of_any_origin_and_name_is_cut_and_read_from_the_artifact(tmp_path, name):
    sequence = np.arange(200, dtype=np.uint8)
    sequence.tofile(tmp_path / "train.tokens")
    of_package = {"dataset": "songs", "origin": "package", "version": "1", "label_names": ()}
    info = sources.SourceInfo(
        **of_package, features={name: Feature((None,), "uint8")}, num_examples={"train": len(sequence)}
    ).cut(RecordsSettings(sequence_length=16))
    assert info.num_examples == {"train": 12}
    (windows,) = read_batches(info, Location(artifact=str(tmp_path)), None, "train", 0, 12)
    np.testing.assert_array_equal(windows[name], sequence[np.arange(12)[:, None] * 16 + np.arange(17)])


@pytest.mark.parametrize("validation", [0.0, 0.25])
def test_the_end_of_a_text_is_its_test_split_and_no_seed_has_a_say(write, tmp_path, validation):
    from pipeline.shards.splits import split_of_each

    info = resolved(write(a_txt=TEXT), tmp_path / "source").cut(RecordsSettings(sequence_length=16))
    sizes = split_sizes(info, Location(), validation)
    splits = list(split_of_each(info, Location(), "train", validation))
    held_out = ["validation"] * sizes.get("validation", 0)
    assert splits == ["train"] * sizes["train"] + held_out + ["test"] * sizes["test"]
    assert sizes["test"] == int(0.2 * info.num_examples["train"])


def test_more_than_256_characters_are_bytes(write, tmp_path):
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 300)))
    info = resolved(write(a_txt=text), tmp_path / "source")
    assert info.label_names == BYTES
    assert info.num_examples == {"train": len(text.encode())}
    assert (tmp_path / "source" / "train.tokens").read_bytes() == text.encode()


def test_a_vocabulary_gives_back_what_it_took():
    characters, by_bytes = Vocabulary.of([TEXT]), Vocabulary(BYTES)
    assert characters.decode(characters.encode(TEXT)) == TEXT
    assert by_bytes.pieces(by_bytes.encode("aé€")) == ["a", "", "é", "", "", "€"]
    assert by_bytes.decode([0xFF, 0x61, 0xC3]) == "\ufffda"
    with pytest.raises(UnknownCharacterError, match=r"'\\xe9', '\\u20ac'"):
        characters.encode("aé€")


def test_a_mark_of_the_byte_order_is_left_out_and_line_ends_are_those_of_unix(write, tmp_path, caplog):
    caplog.set_level("INFO")
    info = resolved(write(a_txt=b"\xef\xbb\xbfab\r\nb\r"), tmp_path / "source")
    assert (info.label_names, info.num_examples) == (("\n", "a", "b"), {"train": 5})
    assert "a.txt: converting 2 carriage returns to line feeds" in caplog.text


def test_splits_of_a_text_may_be_called_otherwise(write, tmp_path):
    info = resolved(write(Train__a_txt=TEXT, val__a_txt=TEXT), tmp_path / "source")
    assert set(info.num_examples) == {"train", "validation"}


def test_a_changed_file_is_named(write, tmp_path):
    settings = write(a_txt=TEXT, b_txt="more")
    resolved(settings, tmp_path / "source")
    assert list(kind_of(settings).changed({}, tmp_path / "source")) == []
    write(b_txt="less", c_txt="new")
    assert list(kind_of(settings).changed({}, tmp_path / "source")) == ["b.txt has changed", "c.txt was added"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a_txt": TEXT.encode("utf-16")}, "a.txt: not UTF-8 text: The file is in UTF-16. Save it in UTF-8."),
        ({"a_txt": TEXT.encode("utf-16-be")}, "The file is in UTF-16"),
        ({"a_txt": TEXT.encode("utf-32")}, "The file is in UTF-32"),
        ({"a_txt": "a" * 5000}, "at least two different characters"),
        (
            {"a_txt": "\u0431\u044b\u0442\u044c \u0438\u043b\u0438 \u043d\u0435\n".encode("utf-16-le") * 9},
            "The file is in UTF-16",
        ),
        ({"a_txt": "caf\u00e9 au lait".encode("latin-1")}, "another encoding, such as Latin-1 or Windows-1252"),
        ({"a_txt": "a text\0 with a zero"}, "a.txt: a text with zero bytes."),
        ({"a_txt": "ab\0c"}, "a.txt: a text with zero bytes."),
        (
            {f"train__{label}__{name}_txt": TEXT for label in ("pos", "neg") for name in "ab"},
            "The folders neg, pos look like labels",
        ),
        ({"a_txt": ""}, "The train split is empty"),
        ({"test__a_txt": "a"}, "It contains no files of the train split"),
    ],
)
def test_files_without_text_are_refused(write, tmp_path, files, words):
    with pytest.raises(SettingsError, match=words):
        resolved(write(**files), tmp_path / "source")


def test_a_link_out_of_the_folder_is_refused_and_one_inside_is_read(write, tmp_path):
    settings = write(a_txt=TEXT)
    (tmp_path / "text" / "b.txt").symlink_to(tmp_path / "text" / "a.txt")
    assert resolved(settings, tmp_path / "inside").num_examples["train"] == 2 * len(TEXT)
    (tmp_path / "secret").write_text("of another")
    (tmp_path / "text" / "c.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(SettingsError, match=r"c\.txt: a link to a file outside the folder"):
        resolved(settings, tmp_path / "outside")
    # What is named is meant.
    assert resolved(asked(tmp_path / "text" / "c.txt"), tmp_path / "named")


def test_a_path_without_a_text_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    for path, words in ((tmp_path / "empty", "It contains no files"), (tmp_path / "none", "It does not exist")):
        with pytest.raises(SettingsError, match=words):
            sources.resolve(asked(path), tmp_path)
    with pytest.raises(SettingsError, match="the path of a text"):
        SourceSettings(dataset="text")


def test_a_text_too_short_for_an_example_or_a_test_split_is_refused(write, tmp_path):
    info = resolved(write(a_txt=TEXT), tmp_path / "source")
    with pytest.raises(SettingsError, match="expected fewer than the 860 characters of the train split"):
        info.cut(RecordsSettings(sequence_length=860))
    with pytest.raises(SettingsError, match="test_share: expected a share of 2 examples that leaves some to train"):
        split_sizes(info.cut(RecordsSettings(sequence_length=400)), Location(), 0.0)


def test_an_artifact_that_has_another_text_is_damaged(write, tmp_path):
    info = resolved(write(a_txt=TEXT), tmp_path / "source").cut(RecordsSettings(sequence_length=16))
    (tmp_path / "source" / "train.tokens").write_bytes(b"\x00" * 100)
    with pytest.raises(DamagedArtifactError, match=r"expected 161 bytes, got 100\."):
        read(info, tmp_path / "source", "train", 0, 10)


def test_the_placeholder_of_a_text_is_a_text(tmp_path):
    info = resolved(SourceSettings(dataset="tiny_shakespeare", origin="placeholder"), tmp_path / "source")
    assert (info.origin, info.num_examples) == ("synthetic", {"train": 200_000, "test": 20_000})
    tokens = np.fromfile(tmp_path / "source" / "test.tokens", np.uint8)
    text = Vocabulary(info.label_names).decode(tokens)
    assert text.startswith(text[0].upper())
    assert len(info.label_names) < 64


def test_tiny_shakespeare_as_tfds_prepares_it(tmp_path):
    data_dir = Path(os.environ.get("TFDS_DATA_DIR", ""))
    if not (data_dir / "tiny_shakespeare").is_dir():
        pytest.skip("TFDS_DATA_DIR holds no prepared tiny_shakespeare")
    info = resolved(SourceSettings(dataset="tiny_shakespeare", origin="tfds"), tmp_path / "source")
    assert len(info.label_names) == 65
    assert info.num_examples == {"train": 1_003_854, "test": 111_540}
    assert info.cut(RecordsSettings(sequence_length=100)).num_examples == {"train": 10_038, "test": 1_115}
