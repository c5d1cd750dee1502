"""The page of the server in a real browser."""

import dataclasses

import pytest
from axe_core_python.selenium import Axe
from chromium import chromium
from served import MANIFEST, encoded, serving, write_served_run

pytest.importorskip("fastapi", reason="the optional packages of serve are not installed")


def setup_module() -> None:
    global By, WebDriverWait, Service, load
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    from pipeline.serve import Service
    from pipeline.serve.server import load


TEXTS = {"feature_spec": {"text": {"shape": (9,), "dtype": "uint8"}}, "problem": "text_classification"}
# A drop of a file, as a person makes it. A script cannot read a path.
DROP = """const file = new File([Uint8Array.from(atob(arguments[0]), c => c.charCodeAt(0))], "a.png");
const data = new DataTransfer(); data.items.add(file);
for (const type of ["dragover", "drop"])
    document.querySelector("#drop").dispatchEvent(
        new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


def shown(browser, begin):
    """The status and the rows of the page, once the status begins so."""
    status = browser.find_element(By.ID, "status")
    WebDriverWait(browser, 300).until(lambda _: status.text.startswith(begin))
    return status.text, [row.text for row in browser.find_elements(By.CSS_SELECTOR, "tr") if row.is_displayed()]


def test_a_dropped_image_gets_labels_with_probabilities(browser, tmp_path):
    import base64

    model = load(Service(write_served_run(tmp_path / "tiny-1")), MANIFEST)
    (tmp_path / "bright.jpg").write_bytes(encoded(220, kind="JPEG"))
    (tmp_path / "notes.txt").write_text("<i>no image</i>")
    with serving(model) as address:
        browser.get(f"http://{address}/")
        assert browser.title == "tiny-1"
        for scheme in ("light", "dark"):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            browser.execute_script(DROP, base64.b64encode(encoded(30)).decode())
            status, rows = shown(browser, "Prediction: dark")
            # The other label is a tag, which stays text.
            assert (status, rows) == ("Prediction: dark", ["dark 99.8%", "<b>light</b> 0.2%"])
            assert browser.find_element(By.TAG_NAME, "caption").text == "Probabilities"
            assert not Axe().run(browser)["violations"]
        image = browser.find_element(By.TAG_NAME, "img")
        WebDriverWait(browser, 300).until(lambda _: image.get_property("naturalWidth") == 50)
        chosen = browser.find_element(By.CSS_SELECTOR, "input")
        chosen.send_keys(str(tmp_path / "bright.jpg"))
        assert shown(browser, "Prediction: <b>")[1][0] == "<b>light</b> 99.5%"
        # The policy of the page blocked nothing.
        assert [entry for entry in browser.get_log("browser") if "favicon" not in entry["message"]] == []
        chosen.send_keys(str(tmp_path / "notes.txt"))
        expected = "The file cannot be used: not a JPEG, PNG, BMP, GIF, WebP, TIFF or AVIF image."
        assert shown(browser, "The file") == (expected, [])
        assert not image.is_displayed()
        browser.execute_script("document.body.append(document.createElement('script'))")
        browser.execute_script("document.querySelector('script:last-of-type').textContent = 'window.foreign = 1'")
        assert browser.execute_script("return window.foreign") is None
    chosen.send_keys(str(tmp_path / "bright.jpg"))
    assert shown(browser, "Failed")[1] == []


def test_labels_that_are_integers_are_shown_by_probability(browser, tmp_path):
    manifest = MANIFEST | {"label_names": ("0", "1")}
    job = dataclasses.replace(write_served_run(tmp_path / "tiny-1", manifest), label_names=("0", "1"))
    with serving(load(Service(job), manifest)) as address:
        browser.get(f"http://{address}/")
        (tmp_path / "bright.png").write_bytes(encoded(220))
        browser.find_element(By.CSS_SELECTOR, "input").send_keys(str(tmp_path / "bright.png"))
        assert shown(browser, "Prediction: 1")[1] == ["1 99.5%", "0 0.5%"]


def test_a_written_text_gets_labels_with_probabilities(browser, tmp_path):
    manifest = MANIFEST | TEXTS
    del manifest["image"]
    job = write_served_run(tmp_path / "texts-1", manifest, "tests.tiny_model:build_by_length")
    with serving(load(Service(job), manifest)) as address:
        browser.get(f"http://{address}/")
        assert not browser.find_element(By.TAG_NAME, "img").is_displayed()
        browser.find_element(By.TAG_NAME, "textarea").send_keys("A text.")
        browser.find_element(By.TAG_NAME, "button").click()
        assert len(shown(browser, "Prediction: ")[1]) == 2
