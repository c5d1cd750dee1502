"""Functions that an installed package adds to the report: a fault costs their part of it, and the log says why."""

import json
import sys

import pytest
from report_runs import render, write_evaluation

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
    return [Text(f"{run.evaluation.num_sums} sums of {len(report.pictures_of(run))} kinds")]


def tiles(run):
    yield "Sums", str(run.evaluation.num_sums)


def card(run):
    return {"rows": [("sums", run.evaluation.num_sums)]}


def section(report):
    raise ZeroDivisionError("of sums")
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


def test_a_package_adds_blocks_tiles_and_a_card(package, folder, tmp_path, caplog):
    files = render([folder], tmp_path / "out")
    assert "42 sums" in files["report.html"]
    assert "Sums: 42 · " in files["report.md"]
    assert "| sums | 42 |" in (tmp_path / "out" / "model-card.md").read_text()
    assert "(standard error 3.1 points)" in files["report.md"]
    assert "left out" not in caplog.text


@pytest.mark.parametrize("function", ["pictures", "blocks", "tiles", "card"])
def test_a_fault_costs_the_functions_part_and_is_logged(package, folder, tmp_path, caplog, function):
    head, _, rest = PACKAGE.partition(f"def {function}(")
    signature, _, body = rest.partition("\n")
    package.write_text(f"{head}def {function}({signature}\n    1 / 0\n{body}")
    files = render([folder], tmp_path / "out")
    assert (
        f"Section left out of the report. faulty:{function} raised ZeroDivisionError: division by zero. Re"
        in caplog.text
    )
    assert ("42 sums" in files["report.html"]) == (function != "blocks")
    assert ("Sums: 42 · " in files["report.md"]) == (function != "tiles")
    assert ("| sums | 42 |" in (tmp_path / "out" / "model-card.md").read_text()) == (function != "card")


def test_a_section_that_fails_or_cannot_be_imported_is_left_out(package, folder, tmp_path, monkeypatch, caplog):
    from pipeline.report.sections import SECTIONS

    monkeypatch.setitem(SECTIONS.__dict__, "_outside", {"faulty": "faulty:section", "gone": "faulty:gone"})
    assert "42 sums" in render([folder], tmp_path / "out")["report.html"]
    assert (
        "Section left out of the report. faulty:section raised ZeroDivisionError: of sums. Repair or un" in caplog.text
    )
    assert (
        "Section left out of the report. tensorcraft.sections 'gone': importing faulty:gone raised Attr" in caplog.text
    )


def test_an_evaluation_of_another_version_of_the_package_is_left_out(package, folder, tmp_path, caplog):
    (folder / "evaluation.json").write_text(json.dumps({"sums": 42}))
    package.write_text(PACKAGE.replace("str(run.evaluation.num_sums)", '"none"'))
    files = render([folder], tmp_path / "out")
    assert "42 sums" not in files["report.html"]
    assert "Sums: none · " in files["report.md"]
    assert (
        f'Section left out of the report. {folder / "evaluation.json"}: evaluation.json lacks "num_sums"' in caplog.text
    )


def test_a_fault_of_a_function_that_is_built_in_is_raised(make_run, tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.report.sections.labels.card", lambda run: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        render([write_evaluation(make_run(), ("cat", "dog"))], tmp_path / "out")
