"""The report of a run of text: its units, its passages, and that what a text holds stays text."""

import json
import re

import pytest
from html_outline import Outline
from report_runs import foreign, render

from pipeline.report import build_report, format_table
from pipeline.report.wording.experiments import sections

FACTS = {
    "problem": "next_token",
    "tokens": "characters",
    "vocabulary": list("abc\n"),
    "characters": {"train": 9_000, "test": 1_000},
    "sequence_length": 4,
    "num_examples": 250,
    "loss": 1.5,
    "bits": 2.164,
    "perplexity": 4.4817,
    "accuracy": 0.55,
    "position_loss": [3.0, 2.0, 1.5, 1.25],
    "passages": [{"index": 7, "loss": 3.5, "pieces": ["a", "b", "\n", "c", "a"], "nats": [None, 0.1, 6.9, 6.9, 3.4]}],
    "written": [{"temperature": 0.5, "prompt": "abc", "text": "cab\nbca"}],
}
RUN = {
    "problem": "next_token",
    "dataset": "tiny_shakespeare",
    "requested_dataset": "tiny_shakespeare",
    "model": "char_lstm",
    "val_loss": 1.5,
    "val_accuracy": 0.55,
    "examples_per_second": 40_000.0,
}
HOSTILE = '</pre><script>alert(1)</script>" onload="alert(1)'


@pytest.fixture
def text_run(make_run):
    def make(name="run", facts=None, **changes):
        folder = make_run(name, **RUN | changes)
        (folder / "evaluation.json").write_text(json.dumps(FACTS | (facts or {})))
        return folder

    return make


def test_a_text_has_its_own_units(text_run, tmp_path):
    files = render([text_run()], tmp_path / "out")
    page = Outline(files["report.html"]).text
    for words in (
        "1.500 nats a character",
        "40,000 characters/s",
        "Perplexity",
        "4.48",
        "Loss by place in the sequence",
    ):
        assert words in page
    assert "1.500 nats a character" in files["report.md"]
    assert "Loss at place 4 of a sequence: 1.250 nats" in files["report.md"]
    assert "| characters/s |" in files["report.md"]
    table = format_table(build_report([text_run("b")], current=[]), width=200)
    assert "characters/s" in table
    assert "images/s" not in table
    assert json.loads(files["report.json"])["runs"][0]["evaluation"]["position_loss"] == FACTS["position_loss"]


def test_texts_and_images_of_one_experiment_have_a_throughput_in_neutral_units(text_run, make_run):
    folders = [text_run(experiment="both"), make_run("images", fingerprint="b" * 64, experiment="both")]
    assert [board["rate"] for board in sections(build_report(folders, current=[]))] == ["examples/s"]


def test_no_standard_error_is_given_of_characters_that_depend_on_one_another(text_run, make_run, tmp_path):
    assert "Standard error" not in render([text_run(test_examples=11_900)], tmp_path / "out")["report.html"]
    image_run = make_run("images", test_examples=10_000)
    assert "Standard error" in render([image_run], tmp_path / "images-out")["report.html"]


def test_what_surprises_has_a_shade_and_a_line_end_that_does_is_seen(text_run, tmp_path):
    page = render([text_run()], tmp_path / "out")["report.html"]
    assert (
        '<pre class="prose" tabindex="0">ab<span class="shade-8">↵\nc</span><span class="shade-4">a</span></pre>'
        in page
    )


@pytest.mark.parametrize("place", ["pieces", "prompt", "text"])
def test_a_script_in_a_text_stays_text(text_run, tmp_path, place):
    facts = {
        "passages": [{"index": 0, "loss": 1.0, "pieces": [HOSTILE if place == "pieces" else "a"], "nats": [5.0]}],
        "written": [{"temperature": 1.0, "prompt": "a", "text": "b", place: HOSTILE}],
    }
    files = render([text_run(facts=facts)], tmp_path / "out")
    outline = Outline(foreign(files["report.html"]))
    assert "script" not in outline.tags
    assert HOSTILE in outline.text
    assert not [name for _, name, _ in outline.attributes if name.startswith("on")]
    assert "<script" not in files["report.md"]


def test_control_and_direction_marks_of_a_text_never_reach_the_page(text_run, tmp_path):
    written = [{"temperature": 1.0, "prompt": "\x1b[31m", "text": "a\u202eb\x00"}]
    files = render([text_run(facts={"written": written})], tmp_path / "out")
    assert not set("\x1b\u202e\x00") & set(files["report.html"] + files["report.md"])


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"passages": [{"index": 0, "loss": 1.0, "pieces": ["a"], "nats": []}]}, "expected 1 figures"),
        ({"position_loss": [1.0] * 70_000}, "expected at most 65,536"),
        ({"problem": "other"}, "next_token"),
    ],
)
def test_an_evaluation_that_is_none_leaves_the_run_out(text_run, tmp_path, caplog, facts, words):
    render([text_run(facts=facts)], tmp_path / "out", current=[])
    assert words in caplog.text


def test_several_runs_and_images_beside_a_text_fit_on_one_page(text_run, make_run, tmp_path):
    folders = [text_run(), make_run("images", fingerprint="b" * 64)]
    page = render(folders, tmp_path / "out", current=["a" * 64, "b" * 64])["report.html"]
    assert "10,012 to 40,000 characters/s or images/s" in Outline(page).text
    assert len(re.findall("Written by the network", page)) == 1
