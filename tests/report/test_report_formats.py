"""Single figures and names as text."""

import math


def setup_module() -> None:
    global moment, number, percent, plain, spread
    from pipeline.report.formats import moment, number, percent, plain, spread


def test_figures_and_names_are_formatted():
    assert number(1234567.891, 1) == "1,234,567.9"
    assert number(None) == number(math.inf) == "–"
    assert number(1e38) == "1e+38"
    assert percent(0.7242, 2) == "72.42 %"
    assert percent(1e308) == "–"
    assert plain(" a\r\n\tb\x00c\u202ed ") == "a b c d"
    assert plain("x" * 1000) == "x" * 79 + "…"
    assert moment("2026-03-01T10:00:59.5Z") == "2026-03-01 10:00 UTC"
    assert spread([1, 2, 3], 3) == [1, 2, 3]
    assert spread(range(101), 3) == [0, 50, 100]
