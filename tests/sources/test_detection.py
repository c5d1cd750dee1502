"""The kind of the data at a path is detected from names and contents."""

import pytest
from image_files import plain_file, write_folder

from pipeline.errors import SettingsError
from pipeline.sources.file_source import kind_at


def folder_of_images(top):
    return write_folder(top / "photos", cats=2, dogs=2)


def images_without_endings(top):
    return write_folder(top / "photos", cats={"1": plain_file("c", 1)}, dogs={"1": plain_file("d", 1)})


def photographs_of_a_phone(top):
    heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
    return write_folder(top / "photos", cats={"1.HEIC": heic}, dogs={"1.heif": heic})


def images_with_notes(top):
    folder = folder_of_images(top)
    for image in [*folder.rglob("*.png")]:
        image.with_suffix(".xml").write_text("<a/>")
        image.with_suffix(".txt").write_text("a cat")
    (folder / "labels.csv").write_text("path,label\n")
    return folder


def table(top):
    (top / "labels.CSV").write_text("path,label\n")
    return top / "labels.CSV"


def text(top):
    # The first bytes that are read end within a character.
    (top / "plays").write_text("x" + "é" * 100_000)
    return top / "plays"


def folder_of_texts(top):
    (top / "texts" / "train").mkdir(parents=True)
    for number in range(20):
        (top / "texts" / "train" / f"{number}.txt").write_text("to be")
    (top / "texts" / "portrait.png").write_bytes(plain_file("a", 0))
    (top / "texts" / ".git").mkdir()
    for number in range(20):
        (top / "texts" / ".git" / f"{number}.png").write_bytes(plain_file("a", 0))
    return top / "texts"


@pytest.mark.parametrize(
    ("write", "kind"),
    [
        (folder_of_images, "folder"),
        (images_without_endings, "folder"),
        (photographs_of_a_phone, "folder"),
        (images_with_notes, "folder"),
        (table, "table"),
        (text, "text"),
        (folder_of_texts, "text"),
    ],
)
def test_the_kind_is_detected(write, kind, tmp_path):
    assert kind_at(str(write(tmp_path))) == kind


def missing(top):
    return top / "nowhere.csv"


def one_image(top):
    return folder_of_images(top) / "cats" / "000.png"


def document(top):
    (top / "a.pdf").write_bytes(b"%PDF\0\xff")
    return top / "a.pdf"


def empty_folder(top):
    (top / "empty").mkdir()
    return top / "empty"


def folder_of_documents(top):
    return document(top).parent


def folder_of_a_table(top):
    return table(top).parent


@pytest.mark.parametrize(
    ("write", "hint"),
    [
        (missing, "It does not exist."),
        (one_image, "a folder of images or UTF-8 text, a table, or another file (docs/how-to/own-data.md)"),
        (document, "It contains nothing usable."),
        (empty_folder, "It contains nothing usable."),
        (folder_of_documents, "It contains nothing usable."),
        (folder_of_a_table, "It contains a table."),
    ],
)
def test_other_paths_are_refused(write, hint, tmp_path):
    path = write(tmp_path)
    with pytest.raises(SettingsError) as refusal:
        kind_at(str(path))
    assert hint in str(refusal.value)
    assert str(path) in str(refusal.value)
