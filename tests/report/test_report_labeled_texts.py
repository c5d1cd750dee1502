"""The report of a text classifier: its mistakes as text, which stays text."""

import json

import pytest
from report_runs import foreign, render, report_of, write_evaluation, write_predictions

from pipeline.report.render import cards

HOSTILE = '</pre><script>alert(1)</script>" onload="alert(1)\x1b[31m'


@pytest.fixture
def text_run(make_run):
    """A run with the mistakes of the evaluation of images, as texts."""

    def make(text="A fine day.", name="photos/{}.jpg", **changes):
        folder = make_run("run", problem="text_classification", model="byte_cnn", dataset="reviews", input_shape=(64,))
        facts = json.loads((write_evaluation(folder) / "evaluation.json").read_text())
        texts = {"test_texts": facts.pop("test_images"), "examples": facts["examples"]}
        texts = {kind: [item | {"text": text} for item in items] for kind, items in texts.items()}
        facts |= texts | {"text_length": 64, "longer_texts": 12} | changes
        (folder / "evaluation.json").write_text(json.dumps(facts))
        write_predictions(folder, {3, 7}, name=name)
        return folder

    return make


def test_mistakes_and_uncertain_texts_are_shown_with_their_files(text_run, tmp_path):
    run = text_run(name="reviews/{}.txt")
    files = render([run], tmp_path / "out")
    for text in (files["report.html"], files["report.md"]):
        assert "Mistakes: 18 of 90 test texts, the 2 most confident first" in text
        assert "reviews/7.txt: predicted ship (97.0%), actual cat" in text
        assert "A fine day." in text
    assert "Correct with the least confidence" in files["report.html"]
    assert "the first 64 bytes of a text, 12 texts longer" in files["report.html"]
    assert "image" not in files["report.md"].partition("## Errors")[2].partition("## Runs")[0]
    texts = cards(report_of([run]))
    assert "A text classifier (byte_cnn)" in texts["model"]
    assert "cat predicted as dog: 6 test texts" in texts["model"]
    assert "{name: text, sequence: uint8}" in texts["dataset"]


def test_a_hostile_text_stays_text(text_run, tmp_path):
    files = render([text_run(HOSTILE, name=HOSTILE.replace('"', "") + "{}")], tmp_path / "out")
    page = foreign(files["report.html"])
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page
    assert "onload=&#34;" in page or "onload=&quot;" in page
    assert "\x1b" not in page + files["report.md"]


@pytest.mark.parametrize(
    "changes",
    [{"test_texts": [{"index": 1, "label": 0, "predicted": 9, "confidence": 1, "text": ""}]}, {"longer_texts": -1}],
)
def test_an_invalid_evaluation_leaves_the_run_out(text_run, tmp_path, changes, caplog):
    with pytest.raises(ValueError, match="current"):
        render([text_run(**changes)], tmp_path / "out")
    assert "Run not included in the report" in caplog.text
