"""The report in a real browser: headless Chromium, which says what it loads, logs and shows.

The screenshots it takes lie in build/screenshots. Skipped where there is no Chromium with its driver (but with CI=true
failed); on Debian and Ubuntu: apt-get install chromium chromium-driver.
"""

import base64
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from axe_core_python.selenium import Axe
from chromium import chromium
from luigi_process import PROJECT
from report_runs import EPOCH, RUN, SKIPPED, render, run_of, write_evaluation, write_predictions, write_run

from pipeline.report.render import sections_of_runs, write_live_page
from tasks.commands.runs import Handler


def setup_module() -> None:
    global By, Keys, Select, WebDriverWait
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select, WebDriverWait


SCREENSHOTS = PROJECT / "build" / "screenshots"
HOSTILE = "<img src=x onerror=alert(1)>"
DIGESTS = {"train": "1" * 64, "test": "2" * 64}
ORIGIN = {"settings": {"Train": {"augment": "flip, crop:4", "seed": "1"}}, "commit": "c" * 40, "is_dirty": True}
WIDE, NARROW = (1280, 900), (390, 844)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """A report about a run with everything there is to show, beside 39 others."""
    return write_page(tmp_path_factory.mktemp("report"), 40)


def write_page(folder: Path, num_runs: int) -> Path:
    folders = []
    for n in range(num_runs):
        facts = {
            "fingerprint": f"{n:064x}"[::-1] if n else RUN["fingerprint"],
            "model": HOSTILE if n == 1 else f"net_{n:03d}",
            "test_accuracy": None if n == 2 else 0.5 + (n * 37 % 200) / 1000,
            "examples_per_second": 900.0 + n * 50,
            "finished_at": f"2026-03-{1 + n % 28:02d}T10:00:{n % 60:02d}+00:00",
            "content_digests": DIGESTS,
        }
        folders.append(write_evaluation(write_run(folder / f"run{n}", **facts), labels=(HOSTILE, "dog", "ship")))
    earlier = run_of(**facts | {"fingerprint": "e" * 64, "test_accuracy": 0.6})
    render(folders, folder / "out", past=[earlier], drawn=True)
    return folder / "out" / "report.html"


@pytest.fixture(scope="module")
def small_page(tmp_path_factory) -> Path:
    """A report about one run beside another, small enough for a picture of all of it."""
    folder = tmp_path_factory.mktemp("small_report")
    times = dict.fromkeys(("step_seconds", "step_alone_seconds", "input_alone_seconds", "evaluation_seconds"), 0.03)
    times |= {"input_wait_share": 0.2, "compilation_seconds": 2.0, "checkpoint_seconds": 0.1}
    folders = [
        write_evaluation(
            write_run(folder / name, fingerprint=name * 64, finished_at=date, time_breakdown=times, origin=ORIGIN)
        )
        for name, date in (("a", "2026-03-02T10:00:00+00:00"), ("b", "2026-03-01T10:00:00+00:00"))
    ]
    for folder_of_run in folders:
        write_predictions(folder_of_run, {3, 7}, name=f"photos/{'x' * 60}_{{}}.jpg")
    render(folders, folder / "out", drawn=True)
    return folder / "out" / "report.html"


@pytest.fixture(scope="module")
def page_of_six(tmp_path_factory) -> Path:
    """A report about six experiments of one root, one of them about texts, some with several seeds or batches."""
    folder = tmp_path_factory.mktemp("six_experiments")
    folders = []
    for n, name in enumerate(("cifar10", "fashion_cnn", "flowers", "mnist_cnn", "mnist_dense", "shakespeare")):
        facts = {"experiment": name, "dataset": name, "requested_dataset": name, "model": f"the_network_of_{name}"}
        facts |= {"test_examples": 10_000, "content_digests": DIGESTS, "input_shape": (28 + n, 28 + n, 3)}
        if name == "shakespeare":
            facts |= {"problem": "next_token", "test_loss": 1.515, "input_shape": (200,)}
        for seed in range(3):
            which = {"fingerprint": f"{16 * n + seed + 1:064x}", "seed": seed, "global_batch_size": 128 << (n % 2)}
            run = write_run(folder / f"{name}{seed}", **facts, **which)
            if name != "shakespeare":
                write_evaluation(run, labels=("cat", "dog", "ship"))
            folders.append(run)
    render(folders, folder / "out", current=[f"{1:064x}"], drawn=True)
    return folder / "out" / "report.html"


@pytest.fixture(scope="module")
def page_of_a_sweep(tmp_path_factory) -> Path:
    """A report about 24 requested runs with three settings that differ, one of them skipped."""
    folder = tmp_path_factory.mktemp("sweep")
    folders, names = [], [f"{n:064x}" for n in range(24)]
    for n, name in enumerate(names):
        facts = {"fingerprint": name, "global_batch_size": 64 << n % 4, "learning_rate": 0.001 * (1 + n // 4 % 3)}
        facts |= {"precision": ("float32", "bfloat16")[n // 12], "test_accuracy": 0.6 + n / 100, "seed": 0}
        facts |= {"test_tta_accuracy": 0.7, "input_shape": (32, 32, 3), "augment": "alternating_flip, translate:2"}
        folders.append(write_run(folder / name, **facts | ({} if n else SKIPPED)))
    render(folders, folder / "out", current=names)
    return folder / "out" / "report.html"


@pytest.fixture
def cleared(browser):
    """The browser with an empty page, light and wide, its logs empty."""
    browser.set_window_size(*WIDE)
    prefer(browser, "light")
    browser.get("about:blank")
    browser.get_log("browser"), browser.get_log("performance")
    return browser


@pytest.fixture
def opened(cleared, page):
    """The browser with the page just loaded."""
    cleared.get(page.as_uri())
    return cleared


def prefer(browser, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def requested(browser) -> set[str]:
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return {e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"}


def column(browser, title: str) -> int:
    script = """return [...document.querySelectorAll(".scoreboard th[data-column]")]
        .findIndex(heading => heading.textContent === arguments[0])"""
    return browser.execute_script(script, title)


def rows(browser, title: str) -> list[str]:
    script = """return [...document.querySelector(".scoreboard").tBodies[0].rows].filter(row => !row.hidden)
        .map(row => row.cells[arguments[0]].innerText)"""
    return browser.execute_script(script, column(browser, title))


def heading(browser, title: str):
    return browser.find_element(By.CSS_SELECTOR, f".scoreboard th[data-column='{column(browser, title)}']")


def sort(browser, title: str) -> str:
    """Click a heading and return the order."""
    heading(browser, title).find_element(By.TAG_NAME, "button").click()
    return heading(browser, title).get_attribute("aria-sort")


def visible_titles(browser) -> list[str]:
    headings = browser.find_elements(By.CSS_SELECTOR, ".scoreboard th[data-column]")
    return [one.text for one in headings if one.is_displayed()]


def test_the_page_logs_no_error_and_asks_for_nothing(opened, page):
    assert opened.get_log("browser") == []
    others = {url for url in requested(opened) if not url.startswith("data:image/png;base64,")}
    assert others == {page.as_uri()}


# A report on 200 runs takes seconds to build. One on 40 has to stay so small that 200 would be within their limits.
@pytest.mark.parametrize(
    ("num_runs", "most_bytes", "most_elements"),
    [(40, 300_000, 3_500), pytest.param(200, 1_000_000, 10_000, marks=pytest.mark.slow)],
)
def test_the_page_of_many_runs_is_small_and_made_of_few_elements(
    cleared, page, tmp_path, num_runs, most_bytes, most_elements
):
    path = page if num_runs == 40 else write_page(tmp_path, num_runs)
    cleared.get(path.as_uri())
    size, elements = path.stat().st_size, cleared.execute_script("return document.querySelectorAll('*').length")
    print(f"{size:,} bytes, {elements:,} elements")
    assert size < most_bytes
    assert elements < most_elements


def test_a_label_that_is_a_tag_stays_text_and_a_foreign_script_does_not_run(opened):
    assert not opened.find_elements(By.CSS_SELECTOR, "img[src=x]")
    assert HOSTILE[:20] in opened.find_element(By.CSS_SELECTOR, ".gallery").text
    assert any(HOSTILE in text for text in rows(opened, "run"))
    opened.execute_script("""const script = document.createElement("script");
        script.textContent = "window.foreign = true"; document.body.append(script)""")
    assert opened.execute_script("return window.foreign") is None
    assert "Content Security Policy" in opened.get_log("browser")[0]["message"]


def test_figures_sort_the_largest_first_then_the_smallest_and_missing_ones_last(opened):
    assert sort(opened, "images/s") == "descending"
    rates = [float(text.replace(",", "")) for text in rows(opened, "images/s")]
    assert rates == sorted(rates, reverse=True)
    assert sort(opened, "images/s") == "ascending"
    assert [float(text.replace(",", "")) for text in rows(opened, "images/s")] == sorted(rates)
    # A run without the figure stays below in either order.
    for _ in range(2):
        sort(opened, "test accuracy")
        assert rows(opened, "test accuracy")[-1] == "–"


def test_words_sort_by_keyboard_one_column_at_a_time(opened):
    sort(opened, "images/s")
    heading(opened, "run").find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    names = [text.split()[0] for text in rows(opened, "run")]
    assert names[1:] == sorted(names[1:])
    sorted_by = opened.find_elements(By.CSS_SELECTOR, "th[aria-sort$=scending]")
    assert [one.text.strip("\u2009↑") for one in sorted_by] == ["run"]


def test_the_best_run_is_the_first_and_a_search_leaves_the_rows_with_all_its_words(opened):
    accuracies = [float(text.strip("%")) for text in rows(opened, "test accuracy")[:-1]]
    assert accuracies == sorted(accuracies, reverse=True)
    assert rows(opened, "#") == [*map(str, range(1, 40)), "–"]
    field = opened.find_element(By.CSS_SELECTOR, "input[type=search]")
    field.send_keys("NET_01 onecycle")
    assert {text.split()[0][:6] for text in rows(opened, "run")} == {"net_01"}
    assert opened.find_element(By.TAG_NAME, "output").text == "10 of 40 rows"
    field.send_keys(Keys.BACKSPACE * 20)
    assert len(rows(opened, "run")) == 40
    assert opened.find_element(By.TAG_NAME, "output").text == ""


def test_each_row_links_to_its_run_which_opens(opened):
    links = opened.execute_script("return [...document.querySelectorAll('.scoreboard a')].map(link => link.hash)")
    assert len(set(links)) == 40
    assert opened.execute_script("return arguments[0].every(hash => document.querySelector(hash))", links)
    is_open = "return document.querySelector(arguments[0]).closest('details').open"
    assert not opened.execute_script(is_open, links[-1])
    opened.find_element(By.CSS_SELECTOR, f".scoreboard a[href='{links[-1]}']").click()
    WebDriverWait(opened, 300).until(lambda page: page.execute_script(is_open, links[-1]))
    assert 0 <= opened.execute_script("return document.querySelector(location.hash).getBoundingClientRect().top") < 900


def test_the_reader_chooses_the_columns(opened):
    titles = visible_titles(opened)
    assert len(titles) <= 10
    assert titles[:2] == ["#", "run"]
    opened.find_element(By.CSS_SELECTOR, ".toolbar summary").click()
    choice = {one.text: one for one in opened.find_elements(By.CSS_SELECTOR, ".toolbar details label")}
    assert {"device verified", "speed-up or reason", "finished", "hosts"} <= set(choice) - set(titles)
    choice["finished"].click()
    choice["device"].click()
    assert set(visible_titles(opened)) == {*titles, "finished"} - {"device"}
    hint = opened.find_element(By.XPATH, "//*[@class='toolbar']/span")
    assert hint.text == "More columns: device, device verified, speed-up or reason …"
    assert rows(opened, "finished")[0].startswith("2026-03-")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_out_of_reach_of_keyboard_screen_reader_or_weak_eyes(opened, scheme):
    prefer(opened, scheme)
    opened.execute_script("for (const part of document.querySelectorAll('details')) part.open = true")
    found = Axe().run(opened)["violations"]
    assert not [(rule["id"], len(rule["nodes"]), rule["nodes"][0]["html"][:200]) for rule in found]


@pytest.fixture
def in_a_window(cleared):
    """A function that gives the browser a window of so many pixels."""

    def resize(width: int, height: int = 900):
        # A window of Chromium is no narrower than 500 pixels; a device is.
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        cleared.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        return cleared

    yield resize
    cleared.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture
def unfolded(cleared, small_page):
    """The browser with the small page, all of it unfolded."""
    cleared.get(small_page.as_uri())
    cleared.execute_script("for (const part of document.querySelectorAll('details')) part.open = true")
    return cleared


def test_the_page_fits_its_window_in_light_and_dark_and_screenshots_are_kept(cleared, small_page, in_a_window):
    cleared.get(small_page.as_uri())
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for name, scheme, size in (("light", "light", WIDE), ("dark", "dark", WIDE), ("narrow", "light", NARROW)):
        prefer(in_a_window(*size), scheme)
        assert cleared.execute_script("return document.documentElement.scrollWidth") <= size[0]
        background = cleared.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(18, 23, 30)") == (scheme == "dark")
        whole = cleared.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        (SCREENSHOTS / f"{name}.png").write_bytes(base64.b64decode(whole["data"]))


# The part of an element that no box around it and no edge of the window hides, as a share of its width.
SHOWN = """const shown = element => {
    const own = element.getBoundingClientRect();
    let [left, right] = [Math.max(own.left, 0), Math.min(own.right, document.documentElement.clientWidth)];
    for (let box = element.parentElement; box; box = box.parentElement) {
        if (getComputedStyle(box).overflowX === "visible") continue;
        const edges = box.getBoundingClientRect();
        [left, right] = [Math.max(left, edges.left), Math.min(right, edges.right)];
    }
    return own.width ? Math.max(0, right - left) / own.width : 0;
};
"""


def test_nothing_is_cut_at_the_side_of_a_phone_a_tablet_or_a_desktop_and_words_stay_readable(unfolded, in_a_window):
    scrolling = """return [...document.querySelectorAll(".scroll")].filter(box => box.scrollWidth > box.clientWidth)
        .map(box => box.getAttribute("aria-label"))"""
    pixels = """return [...document.querySelectorAll("svg text")].map(
        text => parseFloat(getComputedStyle(text).fontSize) * text.ownerSVGElement.getBoundingClientRect().width
        / text.ownerSVGElement.viewBox.baseVal.width)"""
    for width in (390, 800, 1400):
        page = in_a_window(width)
        assert page.execute_script("return document.documentElement.scrollWidth") <= width
        for what in (
            ".scoreboard.sortable td:not(.hidden)",
            "td[data-label='test accuracy']",
            "svg",
            ".tiles dd",
            ".matrix td",
        ):
            found = "[...document.querySelectorAll(arguments[0])].filter(part => part.getClientRects().length)"
            shares = page.execute_script(f"{SHOWN} return {found}.map(shown)", what)
            assert shares, what
            assert min(shares) > 0.99, what
        assert page.execute_script(scrolling) == []
        names = page.execute_script("return [...document.querySelectorAll('.gallery small')]")
        assert names
        assert all(name.get_property("scrollWidth") <= name.get_property("clientWidth") for name in names)
        sizes = page.execute_script(pixels)
        assert min(sizes) >= 9
        assert max(sizes) <= 20


@pytest.mark.parametrize("width", [390, 1280])
def test_a_sweep_of_24_runs_fits_its_window_by_ten_columns_or_stacked(cleared, page_of_a_sweep, in_a_window, width):
    page = in_a_window(width)
    page.get(page_of_a_sweep.as_uri())
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    board = "document.querySelector('.scroll:has(.scoreboard)')"
    assert page.execute_script(f"return {board}.scrollWidth <= {board}.clientWidth")
    is_table = "return getComputedStyle(document.querySelector('.scoreboard tbody tr')).display === 'table-row'"
    assert page.execute_script(is_table) == (width == 1280)
    titles = ["#", "run", "batch", "learning rate", "precision"]
    titles += ["test accuracy", "training time, s", "images/s", "device"]
    assert visible_titles(page) == titles
    caption = page.find_element(By.CSS_SELECTOR, ".scoreboard caption").text
    assert caption.startswith("Best first by test accuracy. All rows: 2 epochs · seed 0 · cifar10 (verified) · 32×32×3")
    assert "skipped: no TPU answers" in rows(page, "run")[-1]


def test_the_figures_of_a_run_fill_their_last_row_and_a_wide_window_is_used_up_to_a_readable_line(
    unfolded, in_a_window
):
    lacking = """return [...document.querySelectorAll(".tiles")].map(box =>
        box.getBoundingClientRect().right - box.lastElementChild.getBoundingClientRect().right)"""
    found = [gap for width in (500, 560, 640) for gap in in_a_window(width).execute_script(lacking)]
    assert found
    assert max(found) < 3
    width = "return document.querySelector('main').getBoundingClientRect().width"
    assert in_a_window(1400).execute_script(width) > 1200
    assert 1500 < in_a_window(2560).execute_script(width) < 1700


def test_the_contents_link_to_every_section_and_stay_visible_beside_it_on_a_wide_screen(cleared, page, in_a_window):
    cleared.get(page.as_uri())
    links = "return [...document.querySelectorAll('nav a')].map(link => link.hash.slice(1))"
    sections = "return [...document.querySelectorAll('main h2')].map(heading => heading.id)"
    names = cleared.execute_script(links)
    assert names == cleared.execute_script(sections)
    assert names[:2] == ["scoreboard", "curves"]
    for width, is_visible in ((1400, True), (390, False)):
        wide = in_a_window(width)
        wide.find_element(By.CSS_SELECTOR, "nav a[href='#definitions']").click()
        top = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
        assert 0 <= wide.execute_script(top, "#definitions") < 900
        assert (wide.execute_script(top, "nav") >= 0) == is_visible


def test_of_six_experiments_each_is_a_line_that_fits_its_window_and_one_scoreboard_is_open(
    cleared, page_of_six, in_a_window
):
    assert page_of_six.stat().st_size < 1_000_000
    cleared.get(page_of_six.as_uri())
    assert cleared.get_log("browser") == []
    visible = "return [...document.querySelectorAll('.scoreboard.sortable')].map(board => board.checkVisibility())"
    assert cleared.execute_script(visible) == [True, *[False] * 5], "the one that was asked for"
    assert cleared.execute_script("return document.querySelectorAll('*').length") < 10_000
    cleared.execute_script("for (const part of document.querySelectorAll('details')) part.open = true")
    for width in (390, 800, 1400):
        page = in_a_window(width)
        overview = page.find_element(By.XPATH, "//section[@aria-labelledby='overview']")
        lines = overview.find_elements(By.CSS_SELECTOR, "tbody tr th")
        names = ["cifar10", "fashion_cnn", "flowers", "mnist_cnn", "mnist_dense", "shakespeare"]
        assert sorted(line.text for line in lines) == names
        assert page.execute_script("return document.documentElement.scrollWidth") <= width
        cells = "[...arguments[0].querySelectorAll('td:not(.hidden)')]"
        shares = page.execute_script(f"{SHOWN} return {cells}.map(shown)", overview)
        assert min(shares) > 0.99


def test_in_a_narrow_window_each_figure_has_its_name_and_the_rows_can_be_sorted(unfolded, in_a_window):
    page = in_a_window(390)
    labels = """return [...document.querySelector(".scoreboard tbody tr").cells]
        .map(cell => getComputedStyle(cell, "::before").content.replaceAll('"', ""))"""
    assert {"test accuracy", "images/s", "device"} <= set(page.execute_script(labels))
    assert sort(page, "test accuracy") == "descending"


def test_the_command_that_repeats_a_run_is_copied_exactly(unfolded):
    permissions = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    unfolded.execute_cdp_cmd("Browser.grantPermissions", permissions)
    command, *_ = unfolded.find_elements(By.CSS_SELECTOR, "pre.command")
    button = command.find_element(By.XPATH, "following-sibling::button")
    button.click()
    WebDriverWait(unfolded, 300).until(lambda _: button.text == "Copied")
    copied = unfolded.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
    assert copied == "tensorcraft run '--Train-augment=flip, crop:4' --Train-seed=1"
    assert command.text == copied


def test_no_line_of_a_command_ends_within_a_flag(unfolded, in_a_window):
    page = in_a_window(390)
    # Each flag has the height of one line.
    heights = """return [...document.querySelectorAll("pre.command span")]
        .filter(word => word.textContent.startsWith("--")).map(word => word.offsetHeight)"""
    assert 0 < max(page.execute_script(heights)) < 30


def test_a_link_to_a_folded_run_opens_it(cleared, page):
    cleared.get(page.as_uri())
    anchor, *_ = cleared.find_elements(By.CSS_SELECTOR, "details.run:not([open]) > .anchor")
    cleared.execute_script("location.hash = arguments[0].id", anchor)
    entry = anchor.find_element(By.XPATH, "..")
    WebDriverWait(cleared, 300).until(lambda _: entry.get_attribute("open"))


def test_the_test_images_are_filtered_by_actual_and_predicted_label(opened):
    box, *_ = opened.find_elements(By.CSS_SELECTOR, ".pictures")
    actual, predicted = (Select(choice) for choice in box.find_elements(By.TAG_NAME, "select"))
    assert [option.text for option in actual.options] == ["any", HOSTILE[:23] + "…", "dog", "ship"]

    def captions():
        return [image.text.partition("\n")[0] for image in box.find_elements(By.TAG_NAME, "li") if image.is_displayed()]

    # The mistakes, the correct image, and a mistake with its confusion.
    assert len(captions()) == 4
    actual.select_by_visible_text("ship")
    assert captions() == [f"predicted {HOSTILE[:23]}… (90.0%), actual ship"] * 2
    assert box.find_element(By.TAG_NAME, "output").text == "2 of 4 examples"
    groups = [group.text.partition(":")[0] for group in box.find_elements(By.TAG_NAME, "h4") if group.is_displayed()]
    assert groups == [f"ship predicted as {HOSTILE[:23]}…"]
    predicted.select_by_visible_text("dog")
    assert captions() == []
    actual.select_by_visible_text("any")
    assert captions() == ["predicted and actual dog (34.0%)"]
    predicted.select_by_visible_text("any")
    assert len(captions()) == 4


def test_confusions_without_images_are_listed(unfolded):
    assert all(title.is_displayed() for title in unfolded.find_elements(By.CSS_SELECTOR, ".groups h4"))
    assert unfolded.find_elements(By.CSS_SELECTOR, ".groups > div:not(:has(li))")


def test_the_page_is_readable_without_its_script(opened, page):
    opened.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        opened.get(page.as_uri())
        assert opened.find_element(By.CSS_SELECTOR, ".legend").is_displayed()
        assert not opened.find_elements(By.CSS_SELECTOR, "th button, .toolbar")
        assert opened.find_element(By.CSS_SELECTOR, ".pictures li:last-child").is_displayed()
        assert len(visible_titles(opened)) <= 10
    finally:
        opened.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.fixture(scope="module")
def page_of_rows(tmp_path_factory) -> Path:
    """A report about five rows to compare. The last two have three seeds each, the others predictions."""
    folder = tmp_path_factory.mktemp("rows")
    folders, names = [], []
    curves = [EPOCH | {"epoch": n, "loss": 2 / n**2, "test_accuracy": 0.6 + n / 100} for n in range(1, 11)]
    for n, wrong in enumerate((range(30), range(20, 40), range(31))):
        facts = {"fingerprint": f"{n:x}" * 64, "global_batch_size": 64 << n, "test_accuracy": 0.6 + n / 100}
        run = write_evaluation(write_run(folder / f"run{n}", curves, **facts, content_digests=DIGESTS))
        folders.append(write_predictions(run, wrong))
    for n, size in enumerate((512, 512, 512, 1024, 1024, 1024), start=3):
        facts = {
            "fingerprint": f"{n:x}" * 64,
            "global_batch_size": size,
            "test_accuracy": 0.7 + (n % 3 + size / 16) / 1000,
        }
        digests = {"content_digests": DIGESTS, "test_examples": 10_000}
        folders.append(write_run(folder / f"run{n}", curves, **facts, **digests, seed=n % 3))
    names = [f"{n:x}" * 64 for n in range(len(folders))]
    render(folders, folder / "out", current=names, drawn=True)
    return folder / "out" / "report.html"


def section_text(browser, name: str) -> str:
    return browser.find_element(By.XPATH, f"//section[@aria-labelledby='{name}']").text


def test_two_to_four_ticked_rows_are_compared(cleared, page_of_rows, in_a_window):
    cleared.get(page_of_rows.as_uri())
    assert "The best row, and the next one with the same test data." in section_text(cleared, "compare")
    boxes = {
        box.find_element(By.XPATH, "./ancestor::tr").find_element(By.CSS_SELECTOR, "td[data-label='batch']").text: box
        for box in cleared.find_elements(By.CSS_SELECTOR, ".scoreboard input[type=checkbox]")
    }
    assert len(boxes) == 5
    for size in ("64", "128"):
        boxes[size].click()
    text = section_text(cleared, "compare")
    assert "batch 128 64" in text, "the better one is the first row of the scoreboard"
    assert "60.00% (−1.00 points, within noise)" in text
    assert "Each row has one run. Another seed may give another result." in text
    assert "A, not B 20 photos/0.jpg (cat), photos/1.jpg (dog)" in text
    assert "B, not A 10 photos/30.jpg (cat)" in text
    titles = (
        "return [...document.querySelectorAll('section[aria-labelledby=compare] circle title')].map(e => e.textContent)"
    )
    assert {"A, epoch 10: 70.00%", "B, training, epoch 1: 50.00%", "A, training, epoch 10: 0.02"} <= set(
        cleared.execute_script(titles)
    )
    boxes["512"].click()
    boxes["1,024"].click()
    assert not boxes["256"].is_enabled(), "four rows at most"
    text = section_text(cleared, "compare")
    assert "learning rate" not in text, "the same in all rows"
    assert "1,024" in text
    assert cleared.find_element(By.CSS_SELECTOR, ".toolbar a[href='#compare']").text == "Compare 4 rows"
    for width in (390, 1280):
        assert in_a_window(width).execute_script("return document.documentElement.scrollWidth") <= width
    found = Axe().run(cleared)["violations"]
    assert not [(rule["id"], rule["nodes"][0]["html"][:200]) for rule in found]
    for size in ("64", "128"):
        boxes[size].click()
    text = section_text(cleared, "compare")
    assert "−3.20 points, more than noise" in text
    assert "Each row has one run" not in text
    boxes["512"].click()
    assert "The best row, and the next one with the same test data." in section_text(cleared, "compare")
    assert cleared.get_log("browser") == []


def test_the_values_of_a_point_are_shown_on_hover_and_without_the_script(cleared, page_of_rows):
    point = """const circle = document.querySelector("section[aria-labelledby=curves] circle");
        circle.scrollIntoView({block: "center"});
        const box = circle.getBoundingClientRect();
        const hit = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
        return [hit.tagName, hit.textContent]"""
    cleared.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    cleared.get(page_of_rows.as_uri())
    name, title = cleared.execute_script(point)
    assert name == "circle"
    assert re.search(r", epoch \d+: \d+\.\d\d%$", title)
    cleared.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        cleared.get(page_of_rows.as_uri())
        assert not cleared.find_elements(By.CSS_SELECTOR, ".scoreboard input")
        text = section_text(cleared, "compare")
        assert "test accuracy 76.50 ± 0.10% 73.30 ± 0.10% −3.20 points more than noise" in text
        assert "more than noise" in text
    finally:
        cleared.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_the_page_prints(cleared, small_page):
    cleared.get(small_page.as_uri())
    printed = cleared.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")


@pytest.mark.slow
def test_without_a_browser_these_tests_are_skipped_and_say_why():
    environment = {**os.environ, "PATH": str(Path(sys.executable).parent)}
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "no chromium with chromedriver is installed" in done.stdout


def test_a_served_page_reloads_when_it_changes(cleared, small_page, tmp_path):
    served = tmp_path / "report" / "report.html"
    served.parent.mkdir()
    shutil.copyfile(small_page, served)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cleared.get(f"http://127.0.0.1:{server.server_port}/")
        title = cleared.title
        assert cleared.current_url.endswith("/report/report.html")
        (tmp_path / "new").write_text(small_page.read_text().replace(f"<title>{title}</title>", "<title>new</title>"))
        # HTTP states times in whole seconds.
        os.utime(tmp_path / "new", (time.time() + 2,) * 2)
        os.replace(tmp_path / "new", served)
        WebDriverWait(cleared, 300).until(lambda browser: browser.title == "new")
        # The policy of the page blocked nothing.
        assert [entry for entry in cleared.get_log("browser") if "favicon" not in entry["message"]] == []
        server.shutdown()


def test_the_page_of_a_running_training_is_accessible_and_reloads_itself(cleared, tmp_path):
    write_run(tmp_path / "run")
    run = {"experiment": HOSTILE, "run": "run 3/24, batch 512", "epochs": 5, "started_at": RUN["finished_at"]}
    live_page = tmp_path / "report.html"
    earlier = sections_of_runs([tmp_path / "run"], [])
    write_live_page(tmp_path, tmp_path / "run", earlier, refresh_seconds=1, **run)
    for width, scheme in itertools.product((390, 1280, 1920), ("light", "dark")):
        cleared.set_window_size(width, 900)
        prefer(cleared, scheme)
        cleared.get(live_page.as_uri())
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        cleared.save_screenshot(str(SCREENSHOTS / f"live-{width}-{scheme}.png"))
    # The page of a training that runs has to reload itself, also without JavaScript.
    assert [violation["id"] for violation in Axe().run(cleared)["violations"]] == ["meta-refresh"]
    live_page.write_text("<title>finished</title>")
    WebDriverWait(cleared, 300).until(lambda browser: browser.title == "finished")
