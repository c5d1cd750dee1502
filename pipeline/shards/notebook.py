"""Beam in a notebook: a pipeline is built there as anywhere else (the shards' aid).

Within IPython Beam puts the number of the cell before the name of each step, and imports for that all it has for
interactive pipelines: DataFrames, which fail with pandas 3 and without pandas, and seconds of time. Nor does it remove
its temporary folder there. It asks nobody but IPython, so the two places where a pipeline asks are answered here; seen
with Beam 2.77.
"""

import contextlib
from collections.abc import Iterator

from apache_beam import pipeline as building
from apache_beam.utils import interactive_utils as labelling

_QUESTION = "is_in_ipython"


@contextlib.contextmanager
def as_in_a_script() -> Iterator[None]:
    """Build and run Beam pipelines in the block as outside of notebooks; a Beam that asks otherwise is left alone."""
    asked = [(module, getattr(module, _QUESTION)) for module in (building, labelling) if hasattr(module, _QUESTION)]
    for module, _ in asked:
        setattr(module, _QUESTION, lambda: False)
    try:
        yield
    finally:
        for module, answer in asked:
            setattr(module, _QUESTION, answer)
