"""The blocks of a section: renderings of a table, what is not rendered, a section from outside, and figures."""

import math
import re

import pytest
from html_outline import Outline
from report_runs import report_of


def setup_module() -> None:
    global blocks, moment, number, percent, plain, rendering, sections_of, spread
    from pipeline.report import blocks
    from pipeline.report import render as rendering
    from pipeline.report import sections as sections_of
    from pipeline.report.formats import moment, number, percent, plain, spread


HOSTILE = "<b>*a*</b> | [x](y)"
TITLES = ("name", "speed", "note")


def toy_table(rows):
    cells = [(name, speed, blocks.Cell(note, ("measured twice",), alarms=("with care",))) for name, speed, note in rows]
    columns = [*blocks.words("name"), *blocks.numbers("speed"), *blocks.words("note")]
    return blocks.Table(columns, cells, label="toys")


class Toys(dict):
    """Sections by name, as a registry has them."""

    load = dict.get

    def __getitem__(self, name):
        return f"pipeline.toys:{name}"


@pytest.fixture
def rendered(make_run, tmp_path, monkeypatch):
    """A function that renders a section of these blocks as HTML, as Markdown and for two terminals."""

    make_run()

    def render(*made):
        monkeypatch.setattr(sections_of, "SECTIONS", Toys(toys=lambda report: [blocks.Section("toys", "Toys", made)]))
        monkeypatch.setattr(rendering, "TERMINAL", ("toys",))
        report = report_of([tmp_path / "run"], published=[])
        terminals = {width: rendering.format_table(report, width=width) for width in (40, 120)}
        contents = [*rendering.sections(report)]
        pages = {"html": rendering.to_html(report, contents), "markdown": rendering.to_markdown(report, contents)}
        return pages | terminals

    return render


@pytest.mark.parametrize("kind", ["html", "markdown", 40, 120])
def test_each_rendering_shows_the_same_cells_of_a_table_and_escapes_them_once(rendered, kind):
    text = rendered(toy_table([("tin", "1,234", "red"), (HOSTILE, "5", "blue & green")]))[kind]
    shown = Outline(text).text if kind == "html" else text
    if kind == "markdown":
        assert r"| &lt;b&gt;\*a\*&lt;/b&gt; \| \[x\](y) | 5 |" in text
        shown = re.sub(r"\\(.)", r"\1", text).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    for cell in (*TITLES, "tin", "1,234", "red", HOSTILE, "5", "blue & green", "measured twice", "with care"):
        assert cell in shown, cell
    assert "&amp;amp;" not in text
    assert ("<b>" in text) == isinstance(kind, int)


def test_a_column_without_a_value_and_a_section_without_blocks_are_not_rendered(rendered):
    for text in rendered(toy_table([("tin", "–", "red"), ("lead", "", "blue")])).values():
        assert "speed" not in text
    for kind, text in rendered().items():
        assert "Toys" not in text, kind


def test_markdown_has_no_heading_without_contents_at_any_depth(rendered):
    def fold(summary, *inner):
        return blocks.Box("fold", inner, summary, is_open=True)

    # Markdown lists the mistakes of a gallery.
    without_mistakes = blocks.Gallery([blocks.Picture("", "right")])
    made = fold("one", fold("two", fold("three", without_mistakes))), fold("four", fold("five", blocks.Text("text")))
    headings = re.findall("^#+ .*", rendered(*made)["markdown"], re.MULTILINE)
    assert headings == ["# TensorCraft training report", "## Toys", "### four", "#### five"]


def test_the_alternative_text_of_a_chart_is_its_caption_with_its_data(rendered):
    chart = blocks.Chart("Length by name", data=["a: 1", "b: 2", "c: 3"], note="In metres.", shares=[0.5, 0.5])
    texts = rendered(chart)
    assert "Length by name. a: 1; b: 2; c: 3." in texts["html"]
    assert "In metres." in texts["html"]
    assert "- a: 1; b: 2; c: 3\n" in texts["markdown"]
    assert "In metres." not in texts["markdown"]
    many = [f"a{number}: 1" for number in range(17)]
    assert blocks.Chart("Length", data=many).alternative() == "Length. a0: 1; a16: 1."
    assert blocks.Chart("Length", data=["a: 1"]).alternative() == "Length. a: 1."


def test_figures_and_names_are_formatted():
    assert number(1234567.891, 1) == "1,234,567.9"
    assert number(None) == number(math.inf) == "–"
    assert number(1e38) == "1e+38"
    assert percent(0.7242, 2) == "72.42%"
    assert percent(1e308) == "–"
    assert plain(" a\r\n\tb\x00c\u202ed ") == "a b c d"
    assert plain("x" * 1000) == "x" * 79 + "…"
    assert moment("2026-03-01T10:00:59.5Z") == "2026-03-01 10:00 UTC"
    assert spread([1, 2, 3], 3) == [1, 2, 3]
    assert spread(range(101), 3) == [0, 50, 100]
