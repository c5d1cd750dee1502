"""What a run says about itself is text and stays text, and the page loads nothing."""

import re

import pytest
from html_outline import Outline
from report_runs import RUN, foreign, render, write_evaluation


def setup_module() -> None:
    global build_report, format_table
    from pipeline.report import build_report, format_table


SCRIPT = "<script>alert(1)</script>"

# finished_at: only a date gets as far as the report.
TEXTS = [name for name, value in RUN.items() if isinstance(value, str) and name != "finished_at"]


@pytest.mark.parametrize("names", [*([name] for name in TEXTS), TEXTS], ids=[*TEXTS, "all"])
def test_a_script_in_a_run_stays_text(make_run, tmp_path, names):
    changed = RUN | dict.fromkeys(names, SCRIPT)
    current = [changed["fingerprint"]]
    # matplotlib draws the page on which every text is a script.
    files = render([make_run(**changed)], tmp_path / "out", current=current, drawn=names is TEXTS)
    assert "script" not in Outline(foreign(files["report.html"])).tags
    assert "<script" not in foreign(files["report.html"])
    assert "<script" not in files["report.md"]


def test_a_label_that_is_a_script_is_shown_as_it_is(make_run, tmp_path):
    files = render([make_run(model=SCRIPT)], tmp_path / "out")
    assert SCRIPT in Outline(files["report.html"]).text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in files["report.md"]


def test_a_quote_in_a_run_does_not_end_an_attribute(make_run, tmp_path):
    page = render([make_run(model='" onload="alert(1)')], tmp_path / "out", drawn=True)["report.html"]
    assert not [name for _, name, _ in Outline(page).attributes if name.startswith("on")]


def test_text_of_a_run_makes_no_markdown_column_link_or_image(make_run, tmp_path):
    folder = make_run(model="a|b\n# c ![x](http://evil.example/x.png) `d` \\|")
    lines = render([folder], tmp_path / "out")["report.md"].splitlines()
    line = next(line for line in lines if "**requested:**" in line)
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 7
    assert not re.search(r"(?<!\\)[\[\]`]", line)


def test_control_characters_of_a_run_never_reach_the_terminal(make_run):
    text = format_table(build_report([make_run(model="\x1b[31mred\u202e [bold]x[/bold]")], current=[]))
    assert not set("\x1b\u202e") & set(text)
    assert "[bold]" in "".join(text.split())


def test_a_lone_surrogate_is_no_text_and_does_not_stop_the_report(make_run, tmp_path, caplog):
    odd = make_run("odd", training_recipe="baseline \ud800", fingerprint="b" * 64)
    assert "odd" not in render([make_run(), odd], tmp_path / "out")["report.json"]
    assert "odd/run.json: run.json is not valid JSON: " in caplog.text


def test_the_page_loads_nothing(make_run, tmp_path):
    folder = write_evaluation(make_run(hostname="http://example.org"))
    page = foreign(render([folder], tmp_path / "out", drawn=True)["report.html"])
    outline = Outline(page)
    loading = {"src", "srcset", "href", "xlink:href", "data", "action", "poster"}
    targets = [value for _, name, value in outline.attributes if name in loading]
    assert sum(target.startswith("data:image/png;base64,") for target in targets) == 7
    # The browser follows a link only if the reader does.
    assert all(target.startswith(("#", "../runs/", "data:image/png;base64,")) for target in targets)
    assert not {"script", "link", "iframe", "object", "image"} & set(outline.tags)
    assert "@import" not in page
    assert all(target.startswith("#") for target in re.findall(r"url\(\s*['\"]?([^)]*)", page))
    assert not re.search(r"https?://", page.replace("http://example.org", ""))
