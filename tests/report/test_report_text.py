"""The report of a run of text: its units, its passages, and that what a text holds stays text."""

import json
import re

import pytest
from html_outline import Outline
from report_runs import cells_of, foreign, render, scoreboard_of


def setup_module() -> None:
    global build_report, format_experiments, format_table, overview
    from pipeline.report import build_report, format_experiments, format_table
    from pipeline.report.sections.scoreboard import overview


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
    "test_loss": 1.5,
    "test_accuracy": 0.55,
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


def test_the_data_of_a_text_are_its_splits_and_its_vocabulary(text_run, tmp_path):
    section = render([text_run()], tmp_path / "out")["report.html"].partition('<h2 id="records">Data</h2>')[2]
    assert "The run used tiny_shakespeare (verified) with 2,250 train and 250 test sequences." in section
    assert "<dt>Vocabulary</dt><dd>4 characters</dd>" in section
    assert "<dt>Predicted characters</dt><dd>train 9,000, test 1,000</dd>" in section


def test_markdown_of_a_run_of_text_is_short_and_leaves_most_passages_to_the_page(text_run, tmp_path):
    passages = [FACTS["passages"][0] | {"index": index} for index in range(8)]
    written = [FACTS["written"][0] | {"temperature": temperature} for temperature in (0.5, 0.8, 1.0)]
    facts = {"passages": passages, "written": written, "position_loss": [2.0] * 100}
    files = render([text_run(facts=facts)], tmp_path / "out")
    assert len(files["report.md"].splitlines()) <= 120
    assert [files[name].count("Test sequence ") for name in ("report.md", "report.html")] == [2, 8]


def test_a_text_of_bytes_is_not_counted_in_characters(text_run, tmp_path):
    run = text_run(facts={"tokens": "bytes"}, tokens="bytes", test_examples=1_552, content_digests={"test": "1" * 64})
    files = render([run], tmp_path / "out")
    page = Outline(files["report.html"]).text.partition("Terms of this page")[0]
    assert all(words in page for words in ("Bits per byte", "40,000 bytes/s", "Bytes/s", "nats per byte"))
    assert "1.500 nats per byte" in files["report.md"]
    report = build_report([run], current=["a" * 64])
    for text in (page, files["report.md"], format_table(report, width=200), format_experiments(report)):
        assert "byte" in text
        assert "character" not in text
    of_before = text_run("before", facts={"tokens": "bytes"}, schema_version=9)
    assert "40,000 bytes/s" in Outline(render([of_before], tmp_path / "before")["report.html"]).text
    mixed = [run, text_run("b", fingerprint="b" * 64)]
    assert all("examples/s" in row for row in scoreboard_of(mixed, experiment="tiny_shakespeare"))


def test_a_text_has_its_own_units(text_run, tmp_path):
    files = render([text_run()], tmp_path / "out")
    page = Outline(files["report.html"]).text
    for words in (
        "1.500 nats per character",
        "Test loss, nats",
        "1.5000",
        "nats per character",
        "40,000 characters/s",
        "Perplexity",
        "4.48",
        "Loss by position in the sequence",
    ):
        assert words in page
    assert "1.500 nats per character" in files["report.md"]
    assert "| 4 | 1.250 |" in files["report.md"]
    assert "| characters/s |" in files["report.md"]
    table = format_table(build_report([text_run("b")], current=[]), width=200)
    assert "characters/s" in table
    assert "images/s" not in table
    assert json.loads(files["report.json"])["runs"][0]["evaluation"]["position_loss"] == FACTS["position_loss"]


def test_texts_and_images_of_one_experiment_have_a_throughput_in_neutral_units(text_run, make_run):
    folders = [text_run(experiment="both"), make_run("images", fingerprint="b" * 64, experiment="both")]
    assert all("examples/s" in row for row in scoreboard_of(folders, experiment="both"))


def test_of_a_text_characters_are_counted_and_no_images(text_run):
    (row,) = scoreboard_of([text_run(test_examples=1_552)], experiment="tiny_shakespeare")
    # Five characters count as one prediction.
    assert "standard error 2.8 points" in row["test loss"]


def test_of_texts_the_best_has_the_least_loss_and_the_overview_shows_it(text_run, make_run, tmp_path):
    surer = {"fingerprint": "b" * 64, "test_loss": 1.4, "test_accuracy": 0.5, "training_recipe": "surer"}
    folders = [text_run(experiment="shakespeare"), text_run("b", experiment="shakespeare", **surer)]
    # The newest, without a figure, is not the best.
    lost = {
        "fingerprint": "d" * 64,
        "test_loss": None,
        "test_accuracy": None,
        "finished_at": "2026-03-02T10:00:00+00:00",
    }
    report = build_report([*folders, text_run("d", experiment="shakespeare", **lost)], current=[])
    assert [one.best.fingerprints for one in report.experiments] == [["b" * 64]]
    images = make_run("images", fingerprint="c" * 64, test_accuracy=0.738)
    files = render([*folders, images], tmp_path / "out")
    overview = files["report.md"].partition("## Experiments")[2].partition("\n## ")[0]
    (line,) = [line for line in overview.splitlines() if "shakespeare" in line]
    assert "| 1.400 nats | char_lstm / surer |" in line
    assert "| 1.400 nats, 2026-03-01 10:00 UTC |" in line or "| 1.500 nats, 2026-03-01 10:00 UTC |" in line
    assert "50.00%" not in line
    assert "| cifar10 | 73.80% |" in overview
    assert "1.400 nats" in format_table(build_report([*folders, images], current=[]))


def test_the_overview_says_of_what_a_change_is_where_it_shows_another_figure(text_run, make_run):
    digests = {"train": "1" * 64, "test": "2" * 64}
    folders = [
        text_run(f"t{n}", fingerprint=f"{n}" * 64, content_digests=digests, finished_at=f"2026-03-0{n}T10:00:00+00:00",
                 test_accuracy=0.5 + n / 100, experiment="shakespeare")
        for n in (1, 2)
    ]  # fmt: skip
    report = build_report([*folders, make_run("images", fingerprint="c" * 64)], current=[])
    (section,) = overview(report)
    (line,) = [row for row in cells_of(section.blocks[0]) if row["experiment"] == "shakespeare"]
    assert line["change"] == "test accuracy +1.00 points, too few runs to estimate the noise"


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
    files = render([text_run(facts=facts)], tmp_path / "out", drawn=place == "text")
    outline = Outline(foreign(files["report.html"]))
    assert "script" not in outline.tags
    assert HOSTILE in outline.text
    assert not [name for _, name, _ in outline.attributes if name.startswith("on")]
    assert "<script" not in files["report.md"]


def test_control_and_direction_marks_of_a_text_never_reach_the_page(text_run, tmp_path):
    written = [{"temperature": 1.0, "prompt": "\x1b[31m", "text": "a\u202eb\x00"}]
    files = render([text_run(facts={"written": written})], tmp_path / "out", drawn=True)
    assert not set("\x1b\u202e\x00") & set(files["report.html"] + files["report.md"])


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"passages": [{"index": 0, "loss": 1.0, "pieces": ["a"], "nats": []}]}, "expected 1 numbers"),
        ({"position_loss": [1.0] * 70_000}, "List should have at most 65536 items"),
        ({"problem": "other"}, "next_token"),
    ],
)
def test_an_evaluation_that_is_none_leaves_the_run_out(text_run, tmp_path, caplog, facts, words):
    render([text_run(facts=facts)], tmp_path / "out", current=[])
    assert words in caplog.text


def test_several_runs_and_images_beside_a_text_fit_on_one_page(text_run, make_run, tmp_path):
    folders = [text_run(), make_run("images", fingerprint="b" * 64)]
    page = render(folders, tmp_path / "out", current=["a" * 64, "b" * 64])["report.html"]
    assert all(rate in Outline(page).text for rate in ("40,000", "10,012"))
    assert len(re.findall("Text generated by the model", page)) == 1
