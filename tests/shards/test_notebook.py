"""A Beam job in a notebook; docs/tour.ipynb, which its test runs in a real kernel, writes records in one."""

import sys

import pytest


def setup_module() -> None:
    global InteractiveShell, as_in_a_script, beam, building, interactive_utils
    InteractiveShell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
    import apache_beam as beam
    from apache_beam import pipeline as building
    from apache_beam.utils import interactive_utils

    from pipeline.shards.engine import as_in_a_script


@pytest.fixture
def in_ipython():
    InteractiveShell.instance()
    yield
    InteractiveShell.clear_instance()


def test_a_pipeline_is_built_in_a_notebook_as_in_a_script(in_ipython):
    asked = building.is_in_ipython, interactive_utils.is_in_ipython
    assert asked[0]()
    with as_in_a_script(), beam.Pipeline(runner="FnApiRunner") as pipeline:
        numbers = pipeline | "Numbers" >> beam.Create([1, 2])
    assert numbers.producer.full_label.startswith("Numbers")
    assert "apache_beam.runners.interactive.interactive_environment" not in sys.modules
    assert (building.is_in_ipython, interactive_utils.is_in_ipython) == asked


def test_a_failed_cell_can_run_again(in_ipython):
    with pytest.raises(ZeroDivisionError), as_in_a_script():
        1 / 0  # noqa: B018
    assert building.is_in_ipython()
