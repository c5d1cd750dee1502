"""The section of runs: how each is repeated, what made it, where its files are, and why it was slow."""

import re
import shlex

import pytest
from html_outline import Outline
from report_runs import EPOCH, RUN, render, run_of, write_evaluation

from pipeline.runs.record import STAGE_PHASES, Origin


def setup_module() -> None:
    global time_verdict
    from pipeline.report.sections.runs import time_verdict


SETTINGS = {"Experiment": {"name": "demo"}, "Train": {"epochs": "2", "augment": "flip, crop:4", "freeze": "a'b$(x)"}}
ORIGIN = {"settings": SETTINGS, "commit": "c" * 40, "is_dirty": True, "version": "0.2.0"}
SIZES = {"num_parameters": 1_500_000, "num_trainable_parameters": 1_400_000, "model_bytes": 6_040_000}


def links(page: str) -> list[str]:
    return [value for tag, name, value in Outline(page).attributes if (tag, name) == ("a", "href") and value[0] != "#"]


def test_a_run_has_the_command_that_repeats_it(make_run, tmp_path):
    files = render([make_run(origin=ORIGIN)], tmp_path / "out")
    command = Origin(**ORIGIN).command()
    assert command in Outline(files["report.html"]).text
    assert f"```sh\n{command}\n```" in files["report.md"]
    assert "In a clone, activate the environment first with: source .venv/bin/activate" in files["report.html"]
    assert shlex.split(command)[2:] == [
        "--Experiment-name=demo", "--Train-epochs=2", "--Train-augment=flip, crop:4", "--Train-freeze=a'b$(x)",
    ]  # fmt: skip


def test_a_run_shows_its_code_model_size_and_settings_beside_their_defaults(make_run, tmp_path):
    page = render([make_run(origin=ORIGIN, **SIZES)], tmp_path / "out")["report.html"]
    for fact in (
        f"<dt>Commit</dt><dd>{'c' * 40}, with uncommitted changes</dd>",
        "<dt>Version</dt><dd>tensorcraft-pipeline 0.2.0</dd>",
        "<dt>Parameters</dt><dd>1,500,000, of which 1,400,000 are trainable</dd>",
        "<dt>Model size</dt><dd>6.04 MB</dd>",
        '<th scope="row">[Train] epochs</th><td data-label="Value">2</td><td data-label="Default">auto</td>',
    ):
        assert fact in page


def test_the_layers_of_a_long_list_are_counted(make_run, tmp_path):
    taken = [f"block_{number}_convolution" for number in range(40)]
    beginning = {"taken": taken, "left": {"logits": "missing logits/kernel"}, "frozen": taken[:2]}
    page = render([make_run(beginning=beginning)], tmp_path / "out")["report.html"]
    for fact in (
        "initial weights</dt><dd>40, from block_0_convolution to block_39_convolution</dd>",
        "<dt>Layers without initial weights</dt><dd>logits</dd>",
        "<dt>Frozen</dt><dd>block_0_convolution, block_1_convolution</dd>",
    ):
        assert fact in page


def test_a_clean_work_tree_has_no_mark(make_run, tmp_path):
    page = render([make_run(origin=ORIGIN | {"is_dirty": False})], tmp_path / "out")["report.html"]
    assert f"<dd>{'c' * 40}</dd>" in page


def test_a_command_whose_data_have_changed_says_so(make_run, tmp_path):
    other = {"train": "a" * 64, "test": "b" * 64}
    make_run("old", fingerprint="1" * 64, origin=ORIGIN, content_digests=other, finished_at="2026-01-01T00:00:00+00:00")
    make_run("new", fingerprint="2" * 64, origin=ORIGIN, finished_at="2026-01-02T00:00:00+00:00")
    page = render([tmp_path / "old", tmp_path / "new"], tmp_path / "out", current=["2" * 64])["report.html"]
    note = "The data have changed since, so the command gives another result."
    assert page.count(note) == 1
    assert note in page.partition('id="run-111111111111')[2].partition("</details>")[0]


def test_the_reason_for_the_device_is_not_folded(make_run, tmp_path):
    reason = "auto: no GPU listed by TensorFlow"
    page = render([make_run(device_reason=reason)], tmp_path / "out")["report.html"]
    assert f'<td data-label="Effective">cpu, AMD EPYC 9B14<small>{reason}</small></td>' in page


def test_a_run_of_an_earlier_version_has_no_command(make_run, tmp_path):
    page = render([make_run()], tmp_path / "out")["report.html"]
    for absent in ("Repeat this run", "Settings that differ", "Commit", "Parameters", "Model size", "--Force-stage"):
        assert absent not in page


@pytest.mark.parametrize("text", ["x" * 10_000, "two\nlines", "\u202e", "\x1b[31m"])
def test_a_command_that_the_page_cannot_show_exactly_is_left_out(make_run, tmp_path, text):
    files = render([make_run(origin=ORIGIN | {"settings": {"Train": {"freeze": text}}})], tmp_path / "out")
    assert 'class="command"' not in files["report.html"]
    assert "```" not in files["report.md"]


def test_a_setting_that_is_a_script_stays_text(make_run, tmp_path):
    hostile = "</pre><script>alert(1)</script>```"
    files = render([make_run(origin={"settings": {hostile: {hostile: hostile}}})], tmp_path / "out")
    assert Outline(files["report.html"]).tags.count("script") == 1
    assert len(re.findall("^```", files["report.md"], re.MULTILINE)) == 2


def test_links_lead_to_the_files_that_a_run_has(make_run, tmp_path):
    folder = make_run("runs/my model-0123 (copy)")
    (folder / "model.keras").touch()
    (folder / "tensorboard").mkdir()
    files = render([folder], tmp_path / "report")
    found = links(files["report.html"])
    assert len(found) == 4
    assert all(" " not in link and f"]({link})" in files["report.md"] for link in found)
    from urllib.parse import unquote

    targets = [(tmp_path / "report" / unquote(link)).resolve() for link in found]
    assert targets == [folder, *(folder / name for name in ("model.keras", "metrics.jsonl", "tensorboard"))]
    assert all(target.exists() for target in targets)


def test_the_best_run_is_first_and_open_and_each_anchor_is_unique(make_run, tmp_path):
    folders = [
        make_run(f"run{place}", fingerprint=f"{place}" * 64, epochs=2 + place, test_accuracy=accuracy)
        for place, accuracy in enumerate((0.7, 0.9, 0.8))
    ]
    # The same run from another host.
    folders.append(make_run("copy", fingerprint="1" * 64, hostname="other", epochs=3, test_accuracy=0.9))
    page = render(folders, tmp_path / "out", current=["0" * 64, "2" * 64])["report.html"]
    assert re.findall(r'<details class="run"( open)?>.*?id="run-(\d)', page, re.DOTALL)[0] == (" open", "1")
    assert page.count('<details class="run" open>') == 1
    ids = [value for _, name, value in Outline(page).attributes if name == "id"]
    assert len(ids) == len(set(ids))
    targets = {value[1:] for _, name, value in Outline(page).attributes if name == "href" and value[0] == "#"}
    assert targets <= set(ids)


def test_the_only_requested_run_is_open_beside_the_best_one(make_run, tmp_path):
    folders = [make_run(), make_run("best", fingerprint="b" * 64, test_accuracy=0.9)]
    page = render(folders, tmp_path / "out")["report.html"]
    assert page.count('<details class="run" open>') == 2


def test_other_runs_are_short(make_run, tmp_path):
    folders = [
        make_run(),
        *(make_run(name, fingerprint=name * 64, epochs=1, test_accuracy=0.1, origin=ORIGIN) for name in "bc"),
    ]
    page = render(folders, tmp_path / "out")["report.html"]
    assert page.count('class="command"') == 2
    assert page.count("Requested and effective</h3>") == 1


def test_the_evaluation_of_the_best_run_is_shown_once(make_run, tmp_path):
    folders = [
        write_evaluation(make_run(name, fingerprint=name * 64, test_accuracy=accuracy))
        for name, accuracy in (("a", 0.5), ("b", 0.6))
    ]
    page = render(folders, tmp_path / "out", current=["a" * 64, "b" * 64])["report.html"]
    assert page.count("Confusion matrix</h3>") == 2
    page = render(folders[1:], tmp_path / "one", current=["b" * 64])["report.html"]
    assert page.count("Confusion matrix</h3>") == 1


SHORT = {f"{phase}_seconds": 1.0 for phase in STAGE_PHASES} | {"step_seconds": 0.1, "step_alone_seconds": 0.1}
FASTER_MODEL = "A smaller model, another precision or an accelerator can be faster."
FASTER_INPUT = "[Train] cache = memory, or [Records] encoding = raw for images, reduces the wait."
SHORT |= {"input_alone_seconds": 0.1, "input_wait_share": 0.05, "compilation_seconds": 1.0}


@pytest.mark.parametrize(
    ("seconds", "changes", "expected"),
    [
        (100.0, {}, f"compute-bound: 5% of each step was spent waiting for input. {FASTER_MODEL}"),
        (
            100.0,
            {"input_wait_share": 0.7},
            f"input-bound: 70% of each step was spent waiting for input. {FASTER_INPUT}",
        ),
        (100.0, {"compilation_seconds": 60.0}, "dominated by compilation: 56% of the 107.0 s of the stage"),
        (10.0, {"evaluation_seconds": 30.0}, "dominated by evaluation: 65% of the 46.0 s of the stage"),
        (
            10.0,
            {"loading_seconds": 30.0},
            "dominated by start-up, loading, benchmarking: 72% of the 46.0 s of the stage",
        ),
        (10.0, {"checkpoint_seconds": 30.0}, "dominated by checkpoints, saving: 67% of the 46.0 s of the stage"),
        (
            40.0,
            {"evaluation_seconds": 41.0, "loading_seconds": 20.0},
            "the largest part of the time is evaluation: 39% of the 106.0 s of the stage",
        ),
        (100.0, {"input_wait_share": None}, ""),
        (100.0, {"input_wait_share": None, "evaluation_seconds": 200.0}, "dominated by evaluation: 65% of the 306.0 s"
         " of the stage"),
        (None, {}, ""),
    ],
)  # fmt: skip
def test_why_a_run_was_slow_is_one_sentence(seconds, changes, expected):
    assert time_verdict(run_of(train_seconds=seconds, time_breakdown=SHORT | changes)) == expected


def test_a_run_without_a_breakdown_has_no_verdict():
    assert time_verdict(run_of()) == ""


def test_the_page_folds_settings_and_markdown_leaves_them_out(make_run, tmp_path):
    files = render([make_run(origin=ORIGIN)], tmp_path / "out", current=[RUN["fingerprint"]])
    title = "Settings that differ from their defaults"
    assert f"<details>\n<summary>{title}</summary>" in files["report.html"]
    assert title not in files["report.md"]


def test_markdown_of_one_run_with_ten_labels_is_short_and_well_formed(make_run, tmp_path):
    curves = [EPOCH | {"epoch": epoch} for epoch in range(1, 101)]
    chosen = {"augment": "flip", "keep": "best", "patience": 2, "kept_epoch": 99, "ended": "patience", "epochs": 100}
    measured = {"time_breakdown": SHORT, "validation_accuracy": 0.7, "test_tta_accuracy": 0.74, **SIZES}
    labels = [f"label {n}" for n in range(10)]
    mistakes = [{"index": index, "label": 0, "predicted": 1, "confidence": 0.9} for index in range(8)]
    run = make_run(curves=curves, origin=ORIGIN, **chosen, **measured)
    write_evaluation(run, labels, test_images=mistakes, data_warnings=[["Unequal labels", "Few of <b>."]])
    text = render([run], tmp_path / "out")["report.md"]
    assert len(text.splitlines()) <= 120
    parts = text.rstrip("\n").split("\n\n")
    for part, following in zip(parts, [*parts[1:], "#"], strict=True):
        lines = part.splitlines()
        # A table, a heading and a paragraph each have blank lines around them.
        assert len({line[:1] == "|" for line in lines}) == 1
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
        assert part[:1] != "#" or (len(lines) == 1 and len(following) - len(following.lstrip("#")) != len(part))
    assert not re.search(r"<\w|\n\n\n| $", text, re.MULTILINE)


def test_a_choice_of_nothing_is_called_none(make_run, tmp_path):
    page = render([make_run(origin=ORIGIN, chosen={"epochs": 5, "augment": ""})], tmp_path / "out")["report.html"]
    assert "<dt>Chosen for auto</dt><dd>epochs = 5, augment = none</dd>" in page
