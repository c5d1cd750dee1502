"""A table of images as a source: CSV, TSV or Parquet."""

import re

import pytest
from image_files import write_folder

from pipeline import sources
from pipeline.errors import DamagedArtifactError, SettingsError
from pipeline.settings.data import SourceSettings
from pipeline.sources.files import INDEX_NAME, read_index


def setup_module() -> None:
    global pa, pyarrow
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet


ROWS = {
    "path": ["cats/000.png", "./cats/001.png", "dogs/000.png", "dogs/001.png"],
    "label": ["007", "no", "yes", "007"],
    "split": ["train", "train", "test", "validation"],
}


@pytest.fixture
def images(tmp_path):
    return write_folder(tmp_path / "images", cats=2, dogs=2)


def write(folder, kind="csv", rows=ROWS, name="labels"):
    table, path = pa.table(rows), folder / f"{name}.{kind}"
    if kind == "parquet":
        pa.parquet.write_table(table, path)
    else:
        pa.csv.write_csv(table, path, pa.csv.WriteOptions(delimiter="\t" if kind == "tsv" else ","))
    return path


def listed(table, tmp_path, **settings):
    target = tmp_path / "listed"
    target.mkdir(parents=True)
    info = sources.resolve(SourceSettings(dataset="table", path=str(table), **settings), target)
    splits = read_index(str(target / INDEX_NAME)).splits
    return info, {
        split: [(path, info.label_names[label]) for path, label in zip(one.paths, one.labels, strict=True)]
        for split, one in splits.items()
    }


def refused(table, error=SettingsError, **settings) -> str:
    with pytest.raises(error) as refusal:
        sources.resolve(SourceSettings(dataset="table", path=str(table), **settings), table.parent)
    assert type(refusal.value) is error
    return str(refusal.value)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_with_usual_names_need_no_setting(images, kind, tmp_path):
    rows = {"id": [1, 2, 3, 4], "Filename": ROWS["path"], "class": ROWS["label"]}
    assert listed(write(images, kind, rows), tmp_path)[1]["train"][0] == ("cats/000.png", "007")


def test_two_columns_with_usual_names_are_refused(images):
    rows = {"path": ROWS["path"], "class": ROWS["label"], "category": ROWS["label"]}
    message = refused(write(images, rows=rows))
    assert "[Source] label_column: expected one column" in message
    assert "The table has path, class, category." in message


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
def test_labels_are_text_and_a_column_names_the_split(images, kind, tmp_path):
    info, splits = listed(write(images, kind), tmp_path, split_column="split")
    assert info.label_names == ("007", "no", "yes")
    assert splits == {
        "train": [("cats/000.png", "007"), ("cats/001.png", "no")],
        "validation": [("dogs/001.png", "007")],
        "test": [("dogs/000.png", "yes")],
    }
    assert info.dataset == "labels"


def test_without_a_column_of_splits_all_is_train(images, tmp_path):
    info, _ = listed(write(images), tmp_path)
    assert (info.num_examples, info.test_share) == ({"train": 4}, 0.2)


def test_columns_have_any_names_and_types(images, tmp_path):
    rows = {"file": ROWS["path"], "class": pa.array([3, 1, 2, 3]), "note": [None, "a", "b", "c"]}
    info, _ = listed(write(images, "parquet", rows), tmp_path, path_column="file", label_column="class")
    assert info.label_names == ("1", "2", "3")


def test_a_column_that_nobody_asks_for_may_hold_anything(images, tmp_path):
    rows = {**ROWS, "note": [1, 2, 3, 4]}
    text = write(images, rows=rows).read_text().replace(",4\n", ",four\n")
    (images / "labels.csv").write_text(text)
    info, _ = listed(images / "labels.csv", tmp_path)
    assert info.num_examples == {"train": 4}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"label": ["a", "b\nc", "b\tc", "a"]}, r"Rename 'b\tc', 'b\nc'"),
        ({"label": ["a", " a", "b", "b"]}, "Rename ' a'"),
        ({"label": ["a"] * 4}, "expected at least two labels, got '{}'. Found: a."),
        ({"label": ["a", "", "b", None]}, "Found row 2 ('cats/001.png', '', 'train'), row 4 ('dogs/001.png', ''"),
        ({"path": [*ROWS["path"][:3], "/etc/passwd"]}, "paths below the table's folder"),
        ({"path": [*ROWS["path"][:3], "a/../../b.png"]}, "paths below the table's folder"),
        ({"path": [*ROWS["path"][:3], "a\0b.png"]}, "paths below the table's folder"),
        ({"label": ["caf\u00e9", "cafe\u0301", "b", "b"]}, "the encoding of accents"),
        ({"path": [*ROWS["path"][:3], "cats//000.png"]}, "one row per image"),
        ({"path": [None] * 4}, "row 4"),
        ({"split": ["train", "eval", "2", "test"]}, "row 2 ('cats/001.png', 'no', 'eval'), row 3"),
        ({"label": ["NA", "b", "none", "b"]}, "Found row 1 ('cats/000.png', 'NA', 'train'), row 3"),
        (
            {"label": ["cat,dog", "cat", "dog", "dog"]},
            "Cells such as 'cat,dog' look like several labels. Set label_separator",
        ),
        ({"label": ["cat;dog", "dog;cat", "x", "x"]}, "look like several labels. "),
        ({"label": ["cat,dog", "cat", "bird", "bird"]}, "look like several labels. "),
        ({"label": ["['a']", "['a', 'b']", "['b']", "['a']"]}, "look like several labels. "),
        ({"label": ["[cat, dog]", "[dog, bird]", "[bird, fish]", "[cat, dog]"]}, "look like several labels. "),
        ({"label": ["1e-3", "2e5", "2", "inf"]}, "expected a number in each cell, got 'label'. Found 'inf'."),
        ({"split": ["test"] * 4}, "rows of the train split"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_that_cannot_be(images, kind, changes, said):
    table = write(images, kind, {**ROWS, **changes})
    message = refused(table, split_column="split")
    assert said.format(table) in message
    assert "\n" not in message


def test_only_the_first_rows_are_named(images):
    message = refused(write(images, rows={"path": ["a"] * 100, "label": ["b"] * 100}))
    assert message.partition("Found")[2].count("row ") == 5
    assert "and 95 more" in message


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
def test_a_missing_column_is_named_with_those_that_are_there(images, kind):
    message = refused(write(images, kind), label_column="lable")
    assert message.startswith("[Source] label_column: expected one column of")
    assert "The table has path, label, split. Did you mean 'label'?" in message
    assert "--Source-label-column" in message


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("labels.csv", b"", "expected a table with rows"),
        ("labels.csv", b"path,label\na,b,c\n", "expected a table with 2 cells in each row"),
        ("labels.csv", b"path,label\n\xff\xfe,a\nb,c\n", "another encoding, such as Latin-1"),
        (
            "labels.csv",
            "path,label\na.jpg,caf\u00e9\n".encode("latin-1"),
            "such as Latin-1 or Windows-1252. Save it in UTF-8",
        ),
        ("labels.csv", "path,label\na.jpg,b\n".encode("utf-16"), "The file is in UTF-16. Save it in UTF-8."),
        (
            "labels.csv",
            "path,label\na.jpg,b\n".encode("utf-16-le"),
            "labels.csv'. The file is in UTF-16. Save it in UTF-8.",
        ),
        ("labels.csv", b"path;label\na.jpg;b\n", "'path;label' has semicolons."),
        ("labels.csv", b"path\tlabel\na.jpg\tb\n", "has tabs"),
        ("labels.csv", b"path;label;score\na.jpg;b;0,5\n", "has semicolons"),
        ("labels.csv", b"0,a\n1,b\n", "The first line '0,a' looks like a row"),
        ("labels.tsv", b"path,label\na.jpg,b\n", "has commas"),
        (
            "labels.csv",
            b"a.jpg,cat\nb.jpg,dog\n",
            "The first line 'a.jpg,cat' looks like a row. Insert a header",
        ),
        ("labels.parquet", b"no parquet", "expected a readable table"),
        ("labels.xlsx", b"", "expected a table of images: a CSV, TSV or Parquet file"),
        ("labels.csv", b"path,label\n", "rows of the train split"),
        ("labels.csv", b"path,label,label\na,b,c\n", "one column of"),
    ],
)
def test_a_file_that_is_no_table(images, name, content, said):
    (images / name).write_bytes(content)
    assert said in refused(images / name)


def test_a_path_that_is_no_table(images):
    assert "It is a folder." in refused(images)
    assert "It does not exist." in refused(images / "labels.csv")


def test_images_that_are_not_there_are_all_listed(images):
    rows = {"path": ["cats/000.png", "x.png", "dogs/000.png", "y.png"], "label": list("abab")}
    message = refused(write(images, rows=rows), DamagedArtifactError)
    assert message.splitlines()[1:] == ["  x.png: file not found", "  y.png: file not found"]


def test_a_link_out_of_the_tables_folder_is_not_followed(images, tmp_path):
    write_folder(tmp_path / "elsewhere", birds=1)
    (images / "linked").symlink_to(tmp_path / "elsewhere")
    rows = {**ROWS, "path": [*ROWS["path"][:3], "linked/birds/000.png"]}
    message = refused(write(images, rows=rows), DamagedArtifactError)
    assert message.splitlines()[1:] == ["  linked/birds/000.png: a link to a file outside the folder"]


def test_a_space_around_a_label_is_reported(images):
    message = refused(write(images, rows=ROWS | {"label": ["a ", "b", "a ", "b"]}), split_column="split")
    assert "Rename 'a '. Remove spaces at the start and the end." in message


def test_a_column_of_lists_is_named_with_its_type(images):
    rows = {**ROWS, "label": [["a"], ["b"], ["a"], ["b"]]}
    message = refused(write(images, "parquet", rows))
    assert "The column label has values of the type list<" in message


def test_an_apostrophe_separates_no_labels(images, tmp_path):
    info, _ = listed(write(images, rows=ROWS | {"label": ["men", "men's", "women's", "women"]}), tmp_path)
    assert info.label_names == ("men", "men's", "women", "women's")


def test_a_column_of_which_each_value_is_another_is_refused_and_labels_that_repeat_are_not(tmp_path):
    folder = write_folder(tmp_path / "images", a=30)
    rows = {"path": [f"a/{number:03d}.png" for number in range(30)]}
    message = refused(write(folder, rows=rows | {"label": [f"id{number}" for number in range(30)]}))
    assert "It has 30 values in 30 rows. For numbers" in message
    info, _ = listed(write(folder, rows=rows | {"label": [str(number % 12) for number in range(30)]}), tmp_path)
    assert info.label_names == tuple(map(str, range(12)))


def test_splits_in_a_table_may_be_called_otherwise(images, tmp_path, caplog):
    caplog.set_level("INFO")
    rows = ROWS | {"split": ["TRAIN", "Train", "val", "Test"]}
    info, _ = listed(write(images, rows=rows), tmp_path, split_column="split")
    assert info.num_examples == {"train": 2, "validation": 1, "test": 1}
    assert "Reading TRAIN as the train split" in caplog.text


def test_paths_may_be_absolute_or_ids_or_have_backslashes(images, tmp_path):
    rows = ROWS | {"path": [str(images / path) for path in ROWS["path"]]}
    _, expected = listed(write(images, rows=rows), tmp_path / "a")
    rows = ROWS | {"path": ["000", "001", "000", "001"], "label": ["a", "b", "a", "b"]}
    (images / "cats").rename(images / "all")
    rows = {name: values[:2] for name, values in rows.items()}
    ids, _ = listed(write(images, rows=rows), tmp_path / "b", path_prefix="all/", path_suffix=".png")
    assert ids.num_examples == {"train": 2}
    back = {"path": ["all\\000.png", "dogs\\000.png"], "label": ["a", "b"]}
    _, splits = listed(write(images, rows=back), tmp_path / "c")
    assert [path for path, _ in splits["train"]] == ["all/000.png", "dogs/000.png"]
    assert {path for path, _ in expected["train"]} == {"cats/000.png", "cats/001.png", "dogs/000.png", "dogs/001.png"}


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (["cats/000", "dogs/000"], "such as 'cats/000.gif', 'dogs/000.gif'. Paths are relative to the table."),
        (["000.png ", "001.png"], "such as '000.png .gif', '001.png.gif'. Paths are relative"),
        (["s3://bucket/a.png", "HTTPS://host/b.png"], "such as 's3://bucket/a.png', 'HTTPS://host/b.png'. Paths are"),
        ([r"C:\a\0.png", r"C:\a\1.png"], "None of the 2 images exists, such as 'C:/a/0.png.gif'"),
    ],
)
def test_missing_images_are_reported_with_their_resolved_paths(images, paths, said):
    message = refused(write(images, rows={"path": paths, "label": ["a", "b"]}), path_suffix=".gif")
    assert said in message
    assert "Complete them with [Source] path_prefix and path_suffix" in message
    assert "\n" not in message


@pytest.mark.parametrize("path", ["000", "cats/000.PNG", "elsewhere/000.png"])
def test_a_missing_image_is_compared_with_the_files_that_are_there(images, path):
    message = refused(write(images, rows={"path": [path, "x.png"], "label": ["a", "b"]}))
    assert re.search(r"The first may mean '(cats|dogs)/000.png'\.", message)


@pytest.mark.parametrize(
    "labels",
    [
        ["Portland, OR", "Portland, ME", "Salem, OR", "Salem, ME"],
        ["red fox", "fox", "red", "red panda"],
        ["2019", "2020", "2019", "2021"],
    ],
)
def test_labels_that_are_no_combinations_are_taken(images, tmp_path, labels):
    info, _ = listed(write(images, rows={"path": ROWS["path"], "label": labels}), tmp_path)
    assert set(info.label_names) == set(labels)


def test_absolute_paths_by_a_link_are_those_of_the_folder(images, tmp_path):
    (tmp_path / "link").symlink_to(images)
    rows = ROWS | {"path": [str(tmp_path / "link" / path) for path in ROWS["path"]]}
    info, _ = listed(write(images, rows=rows), tmp_path)
    assert info.num_examples == {"train": 4}


def values(table, tmp_path, **settings):
    target = tmp_path / "values"
    target.mkdir(parents=True)
    info = sources.resolve(SourceSettings(dataset="table", path=str(table), **settings), target)
    split = read_index(str(target / INDEX_NAME)).splits["train"]
    return info, dict(zip(split.paths, split.labels, strict=True))


@pytest.mark.parametrize(
    ("cells", "separator"),
    [(["cat;dog", "", " dog ", "cat"], ";"), (["['cat', 'dog']", "[]", '["dog"]', "[cat]"], ",")],
)
def test_a_cell_has_any_number_of_labels_with_a_separator(images, tmp_path, cells, separator):
    table = write(images, rows={**ROWS, "label": cells})
    info, labels = values(table, tmp_path, label_separator=separator)
    assert (info.problem, info.label_names) == ("multi_label", ("cat", "dog"))
    assert (info.features["label"].shape, info.features["label"].dtype) == ((2,), "uint8")
    assert [labels[path.removeprefix("./")] for path in ROWS["path"]] == [[1, 1], [0, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize("kind", [int, float, bool])
def test_columns_of_zeros_and_ones_are_labels(images, tmp_path, kind):
    rows = {"cat": [*map(kind, (0, 1, 1, 0))], "dog": [*map(kind, (1, 1, 0, 0))]}
    table = write(images, "parquet", {**ROWS, **rows})
    info, labels = values(table, tmp_path, label_column="dog, cat")
    assert (info.problem, info.label_names) == ("multi_label", ("dog", "cat"))
    assert [labels[path.removeprefix("./")] for path in ROWS["path"]] == [[1, 0], [1, 1], [0, 1], [0, 0]]


@pytest.mark.parametrize("cells", [["0,5", "1,25", "2", "-1"], ["0.5", "1.25", "2", "-1e0"]])
def test_a_column_of_decimals_has_numbers_to_predict(images, tmp_path, cells):
    info, numbers = values(write(images, rows={**ROWS, "label": cells}), tmp_path)
    assert (info.problem, info.label_names, info.features["label"].dtype) == ("regression", ("label",), "float32")
    assert [numbers[path.removeprefix("./")] for path in ROWS["path"]] == [[0.5], [1.25], [2.0], [-1.0]]


def test_whole_numbers_are_labels_unless_the_problem_is_regression(images, tmp_path):
    table = write(images, rows={**ROWS, "label": ["3", "1", "2", "3"]})
    assert listed(table, tmp_path)[0].problem == "image_classification"
    info, numbers = values(table, tmp_path / "other", problem="regression")
    assert (info.problem, numbers["cats/000.png"]) == ("regression", [3.0])


def test_several_columns_of_numbers_are_predicted_together(images, tmp_path):
    info, numbers = values(
        write(images, rows={**ROWS, "x": [1, 2, 3, 4], "y": [5, 6, 7, 8]}), tmp_path, label_column="x,y"
    )
    assert (info.problem, info.label_names, numbers["dogs/001.png"]) == ("regression", ("x", "y"), [4.0, 8.0])


@pytest.mark.parametrize(
    ("changes", "settings", "said"),
    [
        ({"x": ["1", "a", "2", "3"]}, {"label_column": "x", "problem": "regression"}, "got 'x'. Found 'a'."),
        ({"x": ["1", "2", "0", "1"]}, {"label_column": "x", "problem": "multi_label"}, "expected 0 or 1 in each cell"),
        (
            {"x": ["1", "", "2", "3"], "y": [1, 2, 3, 4]},
            {"label_column": "y,x"},
            "Found row 2 ('cats/001.png', '', 'train')",
        ),
        ({"x": ["1", "NaN", "0", "1"], "y": [1, 0, 0, 1]}, {"label_column": "y,x"}, "row 2 ('cats/001.png', 'NaN'"),
        (
            {"x": ["0.1"] * 4},
            {"label_column": "x"},
            "numbers that differ, got 'x'. x is near 0.1. Subtract a constant.",
        ),
        (
            {"x": ["1e9", "1000000000.5", "1000000001", "1000000000.2"]},
            {"label_column": "x"},
            "x is near 1000000000.0. Subtract a constant.",
        ),
        (
            {"x": ["950", "1,234", "12,500", "80"]},
            {"label_column": "x"},
            "expected numbers such as 1234.5, got 'x'. Found '1,234', in which the comma may separate decimals or thou",
        ),
        ({"x": ["a", "b", "a", "b"]}, {"label_column": "x,label"}, "expected one column"),
        ({"label": ["a", "a;a", "", ""]}, {"label_separator": ";"}, "expected at least two labels"),
        ({}, {"problem": "ranking"}, "[Source] problem: expected one of auto, image_classification, multi_label"),
    ],
)
def test_cells_that_do_not_fit_the_problem_are_refused(images, changes, settings, said):
    assert said in refused(write(images, rows={**ROWS, **changes}), **settings)


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """A folder of 60 scans of 12 patients, and the columns of their table."""
    folder = write_folder(tmp_path_factory.mktemp("scans"), scans=60)
    numbers = range(60)
    rows = {
        "path": [f"scans/{number:03d}.png" for number in numbers],
        "label": ["ill" if number % 5 else "well" for number in numbers],
        "patient": [f"p{number % 12}" for number in numbers],
    }
    return folder, rows


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_all_images_of_a_group_are_in_one_split(scans, kind, write_records_of):
    folder, rows = scans
    table, settings = write(folder, kind, rows), {"dataset": "table", "group_column": "patient"}
    records = write_records_of(table, source=settings, validation_share=0.25)
    splits = {}
    for path, (split, _) in records.examples().items():
        splits.setdefault(rows["patient"][rows["path"].index(path)], set()).add(split)
    assert all(len(its) == 1 for its in splits.values())
    assert sorted(min(its) for its in splits.values()) == ["test"] * 2 + ["train"] * 7 + ["validation"] * 3
    assert records.manifest["division"] == "group"
    without = write_records_of(table, source={"dataset": "table"}, validation_share=0.25)
    assert without.manifest["division"] == "label"
    # Groups are a part of the identity, because they change the records.
    assert without.info.digest != records.info.digest


@pytest.mark.parametrize(
    ("patients", "settings", "said"),
    [
        (None, {}, "expected one column of {table}, got 'patient'. The table has path, label, split."),
        (["a", "b", "", "c"], {}, "expected a value in each row, got 'patient'. dogs/000.png has ''."),
        (["a", "b", "NaN", "c"], {}, "has 'NaN'."),
        (["a", "b", "b", "c"], {"split_column": "split"}, "'b' is in test, train."),
    ],
)
def test_groups_that_cannot_be_kept_together_are_refused(images, patients, settings, said):
    table = write(images, rows=ROWS | ({"patient": patients} if patients else {}))
    message = refused(table, group_column="patient", **settings)
    assert "[Source] group_column: " in message
    assert said.format(table=table) in message


def test_groups_of_data_without_columns_are_refused(images):
    with pytest.raises(SettingsError) as refusal:
        sources.resolve(SourceSettings(dataset="folder", path=str(images), group_column="patient"), images.parent)
    assert "[Source] group_column: expected no column for the dataset 'folder', which has none" in str(refusal.value)
    assert "List the images in a table." in str(refusal.value)
