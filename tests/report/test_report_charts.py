"""Charts of the report: values on hover, labels at the ends of lines, logarithmic axes and sweeps."""

import re
from functools import partial

import pytest
from report_runs import EPOCH, report_of, run_of


def setup_module() -> None:
    global Chart, Sweep, draw, plot_curves, plot_sweeps, sweeps
    from pipeline.report.blocks import Chart
    from pipeline.report.drawings import Sweep, draw, plot_curves, plot_sweeps
    from pipeline.report.sections.charts import sweeps


HOSTILE = "<script>alert(1)</script>"


def curves_of(*losses, names=None, **changes):
    """The drawing of a run per name, all with these losses by epoch."""
    curves = [EPOCH | {"epoch": epoch, "loss": loss} for epoch, loss in enumerate(losses, start=1)]
    names = names or ["a run"]
    runs = [run_of(**changes).model_copy(update={"curves": run_of(curves=curves).curves}) for _ in names]
    return draw(Chart("curves", partial(plot_curves, runs, names)))


def titles(svg: str) -> list[str]:
    return re.findall("<title>(.*?)</title>", svg)


def texts(svg: str) -> list[str]:
    return re.findall("<text[^>]*>(.*?)</text>", svg)


def test_every_point_has_its_values_as_a_title_at_its_place():
    drawing = curves_of(1.5, 1.4)
    assert set(titles(drawing.svg)) >= {
        "test, epoch 1: 60.00%", "training, epoch 2: 50.00%", "training, epoch 1: 1.5", "test, epoch 2: 1.2",
    }  # fmt: skip
    # The circles of a line lie on its path.
    accuracy = drawing.svg.split("<svg")[1]
    path = re.search(r'<path d="M ([\d.]+) ([\d.]+) \nL ([\d.]+) ([\d.]+) [^>]*stroke-width: 2;', accuracy)
    circles = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="6"><title>test', accuracy)
    points = [float(number) for number in path.groups()]
    assert [float(number) for circle in circles for number in circle] == pytest.approx(points, abs=0.06)


def test_a_name_in_a_title_stays_text():
    drawing = curves_of(1.5, 1.4, names=[HOSTILE, "other"])
    assert "<script" not in drawing.svg
    assert any("&lt;script&gt;" in title for title in titles(drawing.svg))


def test_lines_have_labels_at_their_ends_instead_of_a_legend_where_they_fit():
    assert curves_of(1.5, 1.4).has_labels
    drawing = curves_of(1.5, 1.4, names=["batch 128", "batch 256"])
    assert drawing.has_labels
    assert texts(drawing.svg).count("batch 128") == texts(drawing.svg).count("batch 256") == 2
    # The lines are equal, and their labels do not overlap.
    heights = [float(y) for y in re.findall(r'y="([\d.]+)"[^>]*>batch', drawing.svg)]
    assert abs(heights[0] - heights[1]) >= 8
    assert not curves_of(1.5, 1.4, names=["a name of a run that is far too long", "other"]).has_labels


def test_eight_runs_have_colors_and_markers_of_their_own():
    drawing = curves_of(1.5, 1.4, names=[f"run {index}" for index in range(8)])
    assert {f"var(--run-{index})" for index in range(1, 9)} <= set(re.findall(r"var\(--run-\d\)", drawing.svg))
    assert drawing.has_labels


@pytest.mark.parametrize(
    ("losses", "is_logarithmic"), [((1.3, 1.1), False), ((2.3, 0.1), True), ((2.3, 0.0), False), ((2.3, -1.0), False)]
)
def test_a_loss_that_spans_more_than_a_decade_has_a_logarithmic_axis(losses, is_logarithmic):
    loss = curves_of(*losses).svg.split("<svg")[2]
    assert ({"0.1", "0.2", "0.5", "1", "2"} <= set(texts(loss))) == is_logarithmic


def test_the_axis_states_the_steps_of_an_epoch():
    assert "epoch of 390 steps" in curves_of(1.5, 1.4, steps_per_epoch=390).svg


def panels_of(make_run, *runs):
    folders = [make_run(f"run{n}", fingerprint=f"{n:064x}", **changes) for n, changes in enumerate(runs)]
    sections = list(sweeps(report_of(folders, [f"{0:064x}"])))
    return sections and sections[0].blocks[0].plot.args[0]


def test_the_metric_is_drawn_by_time_and_by_each_setting_that_differs(make_run):
    runs = [
        {"global_batch_size": batch, "learning_rate": rate, "seed": seed, "test_accuracy": batch / 1000 + seed / 100}
        for batch in (128, 256, 512)
        for rate in (0.1, 0.2)
        for seed in (0, 1)
    ]
    panels = panels_of(make_run, *runs)
    assert [(panel.title, panel.x_name) for panel in panels] == [
        ("Test accuracy", "training time, s"), ("Test accuracy", "global batch"), ("Epoch time, s", "global batch"),
        ("Test accuracy", "learning rate"),
    ]  # fmt: skip
    assert [len(line) for line in panels[1].lines] == [3, 3]
    assert {line[0][3] for line in panels[1].lines} == {"learning rate 0.1", "learning rate 0.2"}
    x, mean, deviation, _ = min(panels[1].lines[0])
    assert (x, mean, deviation) == (128, pytest.approx(0.133), pytest.approx(0.01 / 2**0.5))


def test_a_setting_of_words_or_of_the_recipe_is_a_category(make_run):
    panels = panels_of(make_run, {"learning_rate": -1.0}, {"learning_rate": 0.1}, {"augment": "flip"})
    values = {panel.x_name: {point[0] for line in panel.lines for point in line} for panel in panels[1:]}
    assert values == {"learning rate": {"recipe", 0.1}, "augment": {"none", "flip"}}
    drawing = draw(Chart("sweeps", partial(plot_sweeps, panels), panels=len(panels)))
    assert {"recipe", "flip"} <= set(texts(drawing.svg))


def test_values_beside_that_of_the_recipe_are_in_ascending_order(make_run):
    rates = [0.3712, 0.6148, -1.0, 0.2012]
    panels = panels_of(make_run, *({"learning_rate": rate, "test_accuracy": rate / 9 + 0.5} for rate in rates))
    ticks = texts(draw(Chart("sweep", partial(plot_sweeps, panels[1:]), panels=1)).svg)
    assert [tick for tick in ticks if tick in ("0.2012", "0.3712", "0.6148", "recipe")] == [
        "0.2012", "0.3712", "0.6148", "recipe"
    ]  # fmt: skip


def test_seeds_are_no_sweep(make_run):
    assert not panels_of(make_run, {"seed": 0}, {"seed": 1})


def test_epochs_that_all_compiled_have_no_time(make_run):
    panels = panels_of(make_run, {"curves": [EPOCH]}, {"curves": [EPOCH], "global_batch_size": 256})
    assert [panel.title for panel in panels] == ["Test accuracy", "Test accuracy"]


def test_a_wide_range_of_a_setting_has_a_logarithmic_axis():
    line = [(x, 0.5, None, "a run") for x in (0.001, 0.01, 0.1)]
    sweep = Sweep("Test accuracy", "learning rate", [line], in_percent=True, is_connected=True)
    svg = draw(Chart("sweep", partial(plot_sweeps, [sweep]), panels=1)).svg
    first, second, third = (float(x) for x in re.findall('circle cx="([^"]*)"', svg))
    assert third - second == pytest.approx(second - first, abs=0.2)
    assert titles(svg)[1] == "a run, learning rate 0.01: 50.00%"
