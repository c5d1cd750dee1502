"""What the report shows of a run's evaluation and lineage, and what of it is refused by file and field."""

import base64
import csv
import html
import io
import json
import re

import numpy as np
import pytest
from PIL import Image
from report_runs import EPOCH, RUN, render, report_of, run_of, write_evaluation, write_predictions

from pipeline.artifacts.manifest import write_manifest
from pipeline.errors import DamagedArtifactError


def setup_module() -> None:
    global build_report, read_run
    from pipeline.report import build_report, read_run


HOSTILE = "<img src=x onerror=alert(1)> $x$ | `y`"


@pytest.fixture
def evaluated(make_run):
    return write_evaluation(make_run())


def test_a_run_without_an_evaluation_is_reported_all_the_same(make_run, tmp_path):
    folder = make_run()
    assert read_run(folder).evaluation is None
    assert "Confusion matrix" not in render([folder], tmp_path / "out")["report.html"]


def test_the_page_shows_matrix_classes_calibration_mistakes_and_records(evaluated, tmp_path):
    files = render([evaluated], tmp_path / "out")
    page = files["report.html"]
    assert '<th scope="row">cat</th><td class="right" style="--share:0.8">24</td>' in page
    cells = '<th scope="row">dog</th>' + "".join(
        f'<td data-label="{heading}" class="number">{text}</td>'
        for heading, text in {"test images": "30", **dict.fromkeys(("precision", "recall", "F1"), "80.0%")}.items()
    )
    assert cells in page
    assert re.search(r"<summary>Calibration: expected error \d+\.\d%</summary>", page)
    assert "Mistakes: 18 of 90 test images, the 2 most confident first" in page
    assert 'alt="test image 7: predicted ship (97.0%), actual cat"' in page
    assert "<span>predicted and actual dog (34.0%)</span>" in page
    assert re.findall('alt="([^"]*: test image .)"', page) == [
        "cat: test image 0",
        "dog: test image 1",
        "ship: test image 2",
    ]
    assert "- test image 7: predicted ship (97.0%), actual cat\n- test image 3:" in files["report.md"]
    assert "- cat predicted as dog: 6 test images" in files["report.md"]
    # The page shows images below this heading, and Markdown none.
    assert "Correct with the least confidence</h3>" in page
    assert "Correct with the least confidence" not in files["report.md"]


def test_pictures_have_the_names_of_their_files_and_the_probabilities_of_both_labels(evaluated, tmp_path):
    name = HOSTILE + "x" * 100 + "/{}.jpg"
    files = render([write_predictions(evaluated, {3, 7}, name=name)], tmp_path / "out")
    assert "predicted ship (97.0%), actual cat (10.0%)" in files["report.html"]
    assert "predicted and actual dog (34.0%), second ship (10.0%)" in files["report.html"]
    whole = html.escape(name.format(7), quote=False)
    assert f"<small>{whole}</small>" in files["report.html"]
    assert f"{'x' * 100}/7.jpg: predicted ship (97.0%), actual cat (10.0%)" in files["report.md"]
    assert "<img src=x" not in files["report.html"]


def test_the_largest_confusions_come_first_with_their_own_images(make_run, tmp_path):
    entries = [(7, 0, 2), (3, 2, 0), (4, 2, 0), (5, 0, 2), (6, 0, 2), (8, 0, 2), (9, 0, 2)]
    images = [{"index": index, "label": true, "predicted": given, "confidence": 0.9} for index, true, given in entries]
    matrix = [[24, 1, 5], [0, 30, 0], [2, 0, 28]]
    folder = write_evaluation(make_run(), test_images=images, confusion_matrix=matrix)
    page = render([folder], tmp_path / "out")["report.html"]
    groups = page.partition("Largest confusions</h3>")[2].partition("<h3>")[0].split("<h4>")[1:]
    titles = ["cat predicted as ship: 5 test images", "ship predicted as cat: 2 test images"]
    assert [group.partition("</h4>")[0] for group in groups] == [*titles, "cat predicted as dog: 1 test image"]
    shown = [re.findall(r'alt="test image (\d)', group) for group in groups]
    assert shown == [["7", "5", "6", "8"], ["3", "4"], []]


def test_a_run_of_an_earlier_version_shows_its_mistakes(evaluated, tmp_path):
    facts = json.loads((evaluated / "evaluation.json").read_text())
    facts["mistakes"] = facts.pop("test_images")[:2]
    (evaluated / "evaluation.json").write_text(json.dumps(facts))
    (evaluated / "test_images.png").rename(evaluated / "mistakes.png")
    page = render([evaluated], tmp_path / "out")["report.html"]
    pictures = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="test image', page)
    assert_tiles(dict.fromkeys(pictures), evaluated / "mistakes.png")
    assert "predicted ship (97.0%), actual cat</span>" in page
    assert "Suspected label errors" not in page
    assert not (tmp_path / "out" / "label_errors.csv").exists()


def test_suspected_label_errors_are_listed_by_file_with_certain_conflicts_first(evaluated, tmp_path):
    conflict = {"index": 4, "label": 0, "name": "train/copy.jpg"}
    write_evaluation(evaluated, label_conflicts=[conflict])
    write_predictions(evaluated, {0, 7}, name="photos/{}, the best.jpg")
    files = render([evaluated], tmp_path / "out")
    with (tmp_path / "out" / "label_errors.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = [f"photos/{n}, the best.jpg" for n in (4, 0, 7)]
    assert [row.pop("key") for row in rows] == names
    sure = {"label": "dog", "label_probability": "0.8", "predicted": "dog", "probability": "0.8"}
    assert rows[0] == sure | {"copy": "train/copy.jpg", "copy_label": "cat"}
    wrong = {"label": "cat", "label_probability": "0.1", "predicted": "dog", "probability": "0.8"}
    assert rows[1] == wrong | {"copy": "", "copy_label": ""}
    page = files["report.html"]
    assert f'<th scope="row">{names[0]}<small>An identical image has the label cat: train/copy.jpg</small></th>' in page
    assert f'<th scope="row">{names[1]}</th><td data-label="actual">cat (10.0%)</td>' in page
    assert '<td data-label="predicted">dog (80.0%)</td>' in page
    assert '<a href="label_errors.csv">' in page
    assert "Suspected label errors: 3 of 90 test images" in files["report.md"]
    assert "[label_errors.csv](label_errors.csv)" in files["report.md"]


MEDIANS = {
    (0.6,): "",
    # The newest seed is the last.
    (0.6, 0.5): "2 runs. Shown is seed 0, which has the better test accuracy (60.00%).",
    (0.6, 0.4, 0.5): "3 runs. Shown is seed 2, which has the median test accuracy (50.00%).",
    (0.6, 0.7, 0.4): "3 runs. Shown is seed 0, which has the median test accuracy (60.00%).",
    (0.6, 0.7, 0.8, 0.4): "4 runs. Shown is seed 1, which has the median test accuracy (70.00%).",
}


@pytest.mark.parametrize("accuracies", MEDIANS)
def test_the_errors_of_a_row_with_several_seeds_are_those_of_its_median_run(make_run, tmp_path, accuracies):
    names = [f"{seed}" * 64 for seed in range(len(accuracies))]
    for seed, accuracy in enumerate(accuracies):
        date = f"2026-03-0{1 + seed}T10:00:00+00:00"
        facts = {"seed": seed, "fingerprint": names[seed], "test_accuracy": accuracy, "finished_at": date}
        write_evaluation(make_run(f"seed{seed}", **facts))
    folders = [tmp_path / f"seed{seed}" for seed in range(len(accuracies))]
    page = render(folders, tmp_path / "out", current=names)["report.html"]
    assert [part.partition("<")[0] for part in page.split("The best row has ")[1:]] == [
        *filter(None, [MEDIANS[accuracies]])
    ]
    shown = re.search(r"Shown is seed (\d)", MEDIANS[accuracies] or "Shown is seed 0")[1]
    assert re.search(r'<details class="run" open>.*?id="run-(\d)', page, re.DOTALL)[1] == shown
    assert f'<a href="#run-{shown * 12}">' in page


def test_the_median_run_of_a_row_of_texts_is_that_of_the_loss():
    from pipeline.report.data.scoreboard import scenarios

    losses = {"a": (0.5, 1.7), "b": (0.6, 1.9), "c": (0.7, 1.8)}
    runs = [
        run_of(problem="next_token", fingerprint=name * 64, test_accuracy=accuracy, test_loss=loss)
        for name, (accuracy, loss) in losses.items()
    ]
    (row,) = scenarios(runs)
    assert row.run.fingerprint[0] == "c"
    assert row.finished_at == runs[0].finished_at


def test_only_the_best_run_has_label_errors_and_images_of_correct_predictions(make_run, tmp_path):
    names = [f"{n:064x}" for n in range(2)]
    folders = [
        write_predictions(write_evaluation(make_run(f"run{n}", fingerprint=name, test_accuracy=0.5 + n / 10)), {n})
        for n, name in enumerate(names)
    ]
    page = render(folders, tmp_path / "out", current=names)["report.html"]
    assert page.count("Mistakes: 18 of 90") == 2
    assert page.count("<h3>Suspected label errors") == page.count("<h3>Correct with the least confidence") == 1
    assert (tmp_path / "out" / "label_errors.csv").read_text().splitlines()[1].startswith("photos/1.jpg,dog,")


def test_each_picture_is_its_own_tile_of_the_sheet(evaluated, tmp_path):
    page = render([evaluated], tmp_path / "out")["report.html"]
    pictures = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="test image', page)
    # A mistake is also shown with its confusion.
    assert len(pictures) == 4
    assert_tiles(dict.fromkeys(pictures), evaluated / "test_images.png")


def assert_tiles(pictures, sheet):
    """The pictures in base64 are the tiles of the sheet, in its order."""
    pixels = np.array(Image.open(sheet))
    for place, picture in enumerate(pictures):
        tile = np.array(Image.open(io.BytesIO(base64.b64decode(picture))))
        np.testing.assert_array_equal(tile, pixels[:, 8 * place : 8 * place + 8])


def test_a_label_that_is_a_tag_stays_text_in_tables_and_alternative_texts(make_run, tmp_path):
    folder = write_evaluation(make_run(), labels=(HOSTILE, "dog", "ship"))
    files = render([folder], tmp_path / "out", drawn=True)
    assert "<img src=x" not in files["report.html"]
    assert "&lt;img src=x onerr" in files["report.html"]
    assert "<img" not in files["report.md"]


def test_many_labels_are_listed_by_what_is_taken_for_what(make_run, tmp_path):
    labels = [f"label {n}" for n in range(120)]
    page = render([write_evaluation(make_run(), labels=labels)], tmp_path / "out", drawn=True)["report.html"]
    assert "Confusion matrix" not in page
    assert page.count("predicted as label") == 6
    assert "20 more labels in report.json" in page
    assert len(page.encode()) < 200_000


@pytest.mark.parametrize(("requested", "pictured", "named"), [(0, 1, 1), (1, 2, 2), (5, 3, 5)])
def test_the_best_run_and_the_first_requested_ones_have_pictures(make_run, tmp_path, requested, pictured, named):
    names = [f"{n:064x}" for n in range(5)]
    changes = [{"fingerprint": name, "epochs": n + 1, "test_accuracy": 0.5 + n / 10} for n, name in enumerate(names)]
    folders = [write_evaluation(make_run(f"run{n}", **change)) for n, change in enumerate(changes)]
    report = report_of(folders, names[:requested])
    found = {run.fingerprint for run in report.runs if report.pictures_of(run)}
    assert found == {names[-1], *names[: min(requested, 2)]}
    page = render(folders, tmp_path / "out", current=names[:requested])["report.html"]
    assert page.count('alt="test image 7') == len(found) == pictured
    assert page.count("<small>test image 7<") == named


@pytest.mark.parametrize(
    ("drawn", "most_bytes"), [(False, 400_000), pytest.param(True, 600_000, marks=pytest.mark.slow)]
)
def test_a_page_about_many_runs_stays_a_few_hundred_kilobytes(make_run, tmp_path, drawn, most_bytes):
    names, labels = [f"{n:064x}" for n in range(24)], [f"label {n}" for n in range(10)]
    folders = [write_evaluation(make_run(f"run{n}", fingerprint=name, seed=n), labels) for n, name in enumerate(names)]
    page = render(folders, tmp_path / "out", current=names, drawn=drawn)["report.html"]
    assert page.count("Calibration: expected error") == 24
    assert page.count('aria-label="Calibration of ') == 8
    assert len(page.encode()) < most_bytes


def test_report_json_has_the_evaluation_and_no_pictures(evaluated, tmp_path):
    report = json.loads(render([evaluated], tmp_path / "out")["report.json"])
    assert report["runs"][0]["evaluation"]["expected_calibration_error"] > 0
    assert "pictures" not in report


def changed(facts, **more):
    return json.dumps(facts | more)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("label_names", [], '"label_names": List should have at least 1 item'),
        ("label_names", ["cat", 3, "ship"], '"label_names"'),
        ("confusion_matrix", [[1, 2], [3, 4]], "expected counts for each of 3 labels"),
        ("confusion_matrix", [[1, -2, 3]] * 3, '"confusion_matrix", entry 1, entry 2: expected greater'),
        ("classes", [3], "entry 1: expected a JSON object"),
        ("calibration", [{}], '"calibration", entry 1 lacks "low"'),
        ("test_images", [{"index": 1, "label": 9, "predicted": 0, "confidence": 1.0}], "expected labels below 3"),
        ("test_images", [{"index": 90, "label": 0, "predicted": 0, "confidence": 1.0}], "expected indices below 90"),
        ("num_examples", 0, "expected indices below 0, found 7"),
        ("label_conflicts", [{"index": 1, "label": 3, "name": "a"}], "expected labels below 3, found 3"),
        ("label_conflicts", [{"index": 90, "label": 1, "name": "a"}], "expected indices below 90, found 90"),
        ("label_counts", {"train": {"cat": "many"}}, '"label_counts", "train", "cat": expected a valid integer'),
        ("accuracy", "high", '"accuracy": expected a valid number'),
        ("tiles", {}, '"tiles" lacks "per_row"'),
    ],
)
def test_a_damaged_evaluation_is_refused_by_file_and_field(make_run, name, value, message):
    folder = write_evaluation(make_run(), **{name: value})
    with pytest.raises(DamagedArtifactError, match=re.escape(message)) as raised:
        read_run(folder)
    assert str(folder / "evaluation.json") in str(raised.value)


@pytest.mark.parametrize(
    ("content", "tiles"),
    [
        (b"GIF89a", {}),
        (b"", {}),
        (None, {}),
        ("as it was", {"width": 16}),
        ("as it was", {"height": 10**9}),
        ("as it was", {"per_row": 0}),
    ],
)
def test_a_damaged_sheet_costs_the_pictures_and_not_the_report(make_run, tmp_path, caplog, content, tiles):
    shape = {"per_row": 8, "height": 8, "width": 8} | tiles
    folder = write_evaluation(make_run(), tiles=shape)
    if content is None:
        (folder / "test_images.png").unlink()
    elif content != "as it was":
        (folder / "test_images.png").write_bytes(content)
    page = render([folder], tmp_path / "out")["report.html"]
    assert "<img" not in page
    assert "predicted ship (97.0%), actual cat</span><small" in page
    assert "test_images.png" in caplog.text


def publish(folder, stage, *, upstream=None, **details):
    folder.mkdir(parents=True, exist_ok=True)
    identity = {
        "settings": {"stage": stage},
        "upstream": upstream or {},
        "code": {},
        "packages": {"tensorflow": "2.21.0"},
    }
    return write_manifest(folder, stage=stage, identity=identity, details={"seconds": 1.5, **details})


def test_the_lineage_is_read_from_the_manifests_under_the_root(make_run, tmp_path):
    holds = {"dataset": "cifar10", "num_examples": 3}
    source = publish(tmp_path / "source" / "cifar10-1", "Source", source=holds)
    records = publish(tmp_path / "records" / "cifar10-2", "Records", upstream=holds)
    (tmp_path / "runs").mkdir()
    folder = make_run("runs/cnn-3", records_fingerprint=records["fingerprint"])
    train = publish(folder, "Train", upstream={"records": records["fingerprint"]})
    report = build_report([folder], current=[RUN["fingerprint"]])
    nodes = report.lineage
    assert [(node.stage, node.fingerprint) for node in nodes] == [
        ("Source", source["fingerprint"]),
        ("Records", records["fingerprint"]),
        ("Train", train["fingerprint"]),
    ]
    assert nodes[1].artifact == f"cifar10-{records['fingerprint'][:12]}"
    assert (nodes[1].seconds, nodes[1].settings) == (1.5, {"stage": "Records"})
    page = render([folder], tmp_path / "out")["report.html"]
    assert "3 artifacts that the requested runs depend on" in page
    assert f"cifar10-{records['fingerprint'][:12]}" in page


def test_the_lineage_of_a_run_from_elsewhere_is_its_fingerprints(make_run, tmp_path):
    (tmp_path / "runs").mkdir()
    folder = make_run("runs/copied", records_fingerprint="c" * 64)
    (records, train) = build_report([folder], current=[RUN["fingerprint"]]).lineage
    assert (records.fingerprint, records.settings) == ("c" * 64, None)
    assert train.stage == "Train"
    assert "not under this storage root" in render([folder], tmp_path / "out")["report.html"]


def test_runs_of_one_report_share_their_records_in_the_lineage(make_run, tmp_path):
    (tmp_path / "runs").mkdir()
    names = [f"{n:064x}" for n in range(3)]
    folders = [make_run(f"runs/{n}", fingerprint=n, records_fingerprint="c" * 64) for n in names]
    artifacts = build_report(folders, current=names).lineage
    assert [artifact.stage for artifact in artifacts] == ["Records", "Train", "Train", "Train"]


AUGMENTED = [{"index": 4, "label": 1, "epoch": epoch} for epoch in range(3)]


def test_augmented_examples_are_shown_with_what_they_are(make_run, tmp_path):
    folder = write_evaluation(make_run(augment="flip, crop:4"), augmented=AUGMENTED)
    files = render([folder], tmp_path / "out")
    assert "<h3>Augmented: flip, crop:4</h3>" in files["report.html"]
    found = re.findall(
        r'<img src="data:image/png;base64,([^"]+)" alt="Training image 4, dog, ([^"]+)">', files["report.html"]
    )
    assert [seen for _, seen in found] == ["as stored", "in epoch 1", "in epoch 2"]
    assert_tiles([picture for picture, _ in found], folder / "augmented.png")
    assert "Training accuracy counts augmented images" in files["report.md"]


def test_under_mixup_the_training_accuracy_is_said_to_be_of_the_greater_part(make_run, tmp_path):
    page = render([make_run(augment="mixup:0.2")], tmp_path / "out")["report.md"]
    assert "Augmentation: mixup:0.2. Training accuracy counts augmented images, by the label" in page


def test_a_run_without_augmentation_shows_none_of_it(make_run, tmp_path):
    files = render([write_evaluation(make_run())], tmp_path / "out")
    # The word stands among the terms, of the test split.
    assert not any(word in files[name] for name in ("report.md", "report.html") for word in ("Augment", "ugmented"))
    assert "Selected weights" not in files["report.html"]


def test_the_kept_epoch_and_why_training_ended_are_stated(make_run, tmp_path):
    curves = [EPOCH | {"epoch": epoch, "test_accuracy": 0.5 + 0.05 * epoch} for epoch in (1, 2, 3)]
    chosen = {"epochs": 9, "keep": "best", "patience": 2, "kept_epoch": 1, "ended": "patience"}
    files = render([make_run(curves=curves, **chosen)], tmp_path / "out")
    assert "Selected weights: epoch 1, the best on the validation split" in files["report.md"]
    assert "Training ended: after 2 epochs without a better one on the validation split" in files["report.md"]
    assert "after epoch 1 test accuracy 55.0%" in files["report.html"]


def test_augmented_examples_of_no_label_are_refused(make_run):
    folder = write_evaluation(make_run(), augmented=[{"index": 0, "label": 3, "epoch": 0}])
    with pytest.raises(DamagedArtifactError, match='"augmented": expected labels below 3, found 3'):
        read_run(folder)


def test_warnings_of_the_data_and_the_accuracy_without_duplicates_are_on_the_page(make_run, tmp_path):
    run = make_run()
    write_evaluation(
        run,
        data_warnings=[["Very unequal labels", "The train split has 121 of cats and 1 of <mice>."]],
        without_duplicates={"num_examples": 86, "accuracy": 0.75},
        without_near_duplicates={"num_examples": 80, "accuracy": 0.7},
    )
    page = render([run], tmp_path / "out")["report.html"]
    assert "Very unequal labels" in page
    assert "121 of cats and 1 of &lt;mice&gt;" in page
    assert "75.0% on the 86 that the train split does not contain, 70.0% on the 80 that resemble no train" in page


def test_an_evaluation_of_before_says_nothing_of_them(make_run, tmp_path):
    run = make_run()
    write_evaluation(run)
    assert "that the train split does not contain" not in render([run], tmp_path / "out")["report.html"]
