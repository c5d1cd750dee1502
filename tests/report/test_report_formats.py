"""Single figures and names as text."""

import math

import pytest

from pipeline.report.facts.series import spread
from pipeline.report.wording.formats import moment, number, percent, plain


@pytest.mark.parametrize(
    ("formatted", "expected"),
    [
        (number(1234567.891, 1), "1,234,567.9"),
        (number(None), "–"),
        (number(math.inf), "–"),
        (number(1e38), "1e+38"),
        (percent(0.7242, 2), "72.42 %"),
        (percent(1e308), "–"),
        (plain(" a\r\n\tb\x00c\u202ed "), "a b c d"),
        (plain("x" * 1000), "x" * 79 + "…"),
        (moment("2026-03-01T10:00:59.5Z"), "2026-03-01 10:00 UTC"),
        (spread([1, 2, 3], 3), [1, 2, 3]),
        (spread(range(101), 3), [0, 50, 100]),
    ],
)
def test_figures_and_names_are_formatted(formatted, expected):
    assert formatted == expected
