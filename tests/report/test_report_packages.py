"""Functions that an installed package adds to the report."""

import json
import sys

import pytest
from report_runs import render

from pipeline.problems.results import RESULTS

PACKAGE = """
from pipeline.problems.results import Ranking, Results
from pipeline.report.blocks import Text
from pipeline.runs.validation import Count, Untrusted

RESULTS = Results(
    ranking=Ranking("test_accuracy", predictions_per_draw=1),
    evaluation_schema="faulty:Evaluation",
    pictures="faulty:pictures",
    evaluation_blocks="faulty:blocks",
    tiles="faulty:tiles",
    card="faulty:card",
)


class Evaluation(Untrusted):
    num_sums: Count


def pictures(folder, evaluation):
    return {"sums": ["png"]}


def blocks(report, run, name):
    return [Text(f"{run.evaluation.num_sums} sums")]


def tiles(run):
    yield "Sums", str(run.evaluation.num_sums)


def card(run):
    return {"rows": [("sums", run.evaluation.num_sums)]}
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The file of a package that has a problem, and a run of the problem."""
    from pipeline.report.sections import SECTIONS

    file = tmp_path / "site" / "faulty.py"
    file.parent.mkdir()
    file.write_text(PACKAGE)
    monkeypatch.syspath_prepend(file.parent)
    monkeypatch.setitem(RESULTS.__dict__, "_outside", {"sums": "faulty:RESULTS"})
    monkeypatch.setitem(SECTIONS.__dict__, "_outside", {})
    yield file
    sys.modules.pop("faulty", None)


@pytest.fixture
def folder(make_run):
    run = make_run(problem="sums", test_examples=200)
    (run / "evaluation.json").write_text(json.dumps({"num_sums": 42}))
    return run


def test_a_package_adds_blocks_tiles_and_a_card(package, folder, tmp_path):
    files = render([folder], tmp_path / "out")
    assert "42 sums" in files["report.html"]
    assert "Sums: 42 · " in files["report.md"]
    assert "| sums | 42 |" in (tmp_path / "out" / "model-card.md").read_text()
    assert "(standard error 3.1 points)" in files["report.md"]
