"""Searches in the report."""

import json
import re

import pytest
from luigi_process import FAST
from report_runs import RUN, render, report_of

from tasks.config_files import settings_in

INI = "# The best settings of a search on the validation split\n\n[Train]\nlearning_rate = 0.01\n"


def trial(number=0, state="finished", values=(0.9,), **settings):
    settings = {"learning_rate": 0.01, "augment": "none", **settings}
    values = {f"{seed}": value for seed, value in enumerate(values)}
    return {"number": number, "settings": settings, "state": state, "epochs": 3, "values": values}


def search_of(tmp_path, best, trials=None, **changes):
    from pipeline.report import read_searches

    found = {
        "name": "cifar10-0123",
        "experiment": "cifar10",
        "metric": "validation_accuracy",
        "requested": 4,
        "trials": best if trials is None else trials,
        "best": best,
        "importances": {},
        "settings_file": INI,
    }
    path = tmp_path / "cifar10-0123.json"
    path.write_text(json.dumps(found | changes))
    return list(read_searches([path]))


def test_the_page_shows_trials_importances_and_a_settings_file(make_run, tmp_path):
    best = [trial(0, values=(0.9, 0.91, 0.92)), trial(1, values=(0.8, 0.81, 0.82), augment="flip, crop:4")]
    pruned, failed = trial(2, "pruned", (0.1,)), trial(3, "failed", (None,))
    importances = {"learning_rate": 0.75, "augment": 0.25}
    searches = search_of(tmp_path, best, [*best, pruned, failed], importances=importances)
    texts = render([make_run()], tmp_path / "report", searches=searches)
    page, markdown = texts["report.html"], texts["report.md"]
    for text in (page, markdown):
        assert "Search: cifar10-0123" in text
        assert "Best of 4 of 4 trials, judged on the validation split alone." in text
        assert "91.00 ± 1.00%" in text
        assert "0: 90.00%, 1: 91.00%, 2: 92.00%" in text
        assert "is more than noise of the seeds. The first seed chose the rows" in text
        assert "flip, crop:4" in text
        assert "pruned" in text
        assert "failed" in text
    assert re.search(r"Importance: learning.?_rate 75%, augment 25%\.", markdown)
    name = "search-cifar10-0123.ini"
    assert f"({name})" in markdown
    assert f'href="{name}"' in page
    assert settings_in([tmp_path / "report" / name]) == {"Train": {"learning_rate": "0.01"}}
    assert json.loads(texts["report.json"])["searches"][0]["trials"][2]["state"] == "pruned"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (((0.90, 0.80, 0.85), (0.89, 0.81, 0.84)), "The lead of row 1 over row 2 may be noise of the seeds."),
        (((0.90,), (0.80,)), "may be noise, as there are too few seeds."),
        (((0.90, 0.80), (0.90, 0.80)), "The lead of row 1 over row 2 is a tie."),
        (((0.90, 0.91), (0.70, 0.71)), "is more than noise of the seeds."),
        (((0.90, 0.91), (0.70, None)), ""),
        (((0.90, 0.91),), ""),
    ],
)
def test_a_lead_within_the_noise_of_the_seeds_is_called_noise(values, expected, tmp_path):
    from pipeline.report.sections.searches import searches

    best = [trial(number, values=each) for number, each in enumerate(values)]
    (section,) = searches(report_of([], current=[], searches=search_of(tmp_path, best)))
    texts = [getattr(block, "text", "") for block in section.blocks]
    assert any(expected in text for text in texts)
    assert expected or not any("lead" in text for text in texts)
    assert any("Too few trials have finished to estimate the importance" in text for text in texts)


def test_losses_and_searches_without_a_finished_trial_are_shown(tmp_path):
    from pipeline.report.sections.searches import searches

    losing = search_of(tmp_path, [trial(values=(1.23456,))], metric="validation_loss")
    empty = search_of(tmp_path, [], [trial(0, "running", ())], settings_file="")
    first, second = searches(report_of([], current=[], searches=[*losing, *empty]))
    assert "1.2346" in [cell.text for cell in first.blocks[0].visible()[1][0]]
    table, _, links, *_ = second.blocks
    assert not table
    assert not links


def test_searches_of_other_experiments_are_left_out(make_run, tmp_path):
    from pipeline.report.sections.searches import searches

    other = search_of(tmp_path, [trial()], experiment="flowers")
    assert [*searches(report_of([make_run()], [RUN["fingerprint"]], searches=other))] == []
    assert len([*searches(report_of([], current=[], searches=other))]) == 1


@pytest.mark.parametrize("changes", [{"trials": [{"number": -1}]}, {"metric": "test_accuracy"}, {"importances": None}])
def test_an_invalid_file_is_logged_and_left_out(changes, tmp_path, caplog):
    assert search_of(tmp_path, [], **changes) == []
    assert "cifar10-0123.json" in caplog.text
    assert "The next start of the search writes it again." in caplog.text


def test_hostile_texts_stay_text(tmp_path, make_run):
    best = [trial(augment="<script>alert(1)</script>\n| a | b |")]
    texts = render([make_run()], tmp_path / "report", searches=search_of(tmp_path, best))
    assert "<script>alert" not in texts["report.html"]
    assert "\n| a | b |" not in texts["report.md"]


def test_a_search_that_goes_on_makes_the_report_stale(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    assert luigi.status(*FAST)["Report"]["state"] == "fresh"
    (luigi.root / "search").mkdir()
    (luigi.root / "search" / "cifar10-0123.json").write_text("{}")
    report = luigi.status(*FAST)["Report"]
    assert (report["state"], report["reasons"]) == ("stale", ["search cifar10-0123.json added"])
    # The journal and the settings file are not in the report.
    (luigi.root / "search" / "cifar10-0123.json").rename(luigi.root / "search" / "cifar10-0123.journal")
    assert luigi.status(*FAST)["Report"]["state"] == "fresh"
