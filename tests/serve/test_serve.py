"""The server: the Open Inference Protocol by Triton's client, files, limits, and what it refuses."""

import asyncio
import gc
import io
import json
import logging
import re
import select
import socket
import threading
import time
import tracemalloc
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from served import ALONE, LABELS, MANIFEST, SHAPE, encoded, serving, write_served_run

pytest.importorskip("fastapi", reason="the optional packages of serve are not installed")


def setup_module() -> None:
    global Batches, HTTPException, httpx, triton, Service, load, load_trained, predict_rows, inference
    import httpx
    import tritonclient.http as triton
    from fastapi import HTTPException

    from pipeline.predict import rows as predict_rows
    from pipeline.runs.load_model import load_trained
    from pipeline.serve import Service, inference
    from pipeline.serve.limits import Batches
    from pipeline.serve.server import load


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return write_served_run(tmp_path_factory.mktemp("runs") / "tiny-1")


@pytest.fixture(scope="module")
def model(job):
    return load(Service(job), MANIFEST)


@pytest.fixture(scope="module")
def address(model):
    with serving(model, max_body_bytes=2_000_000) as address:
        yield address


@pytest.fixture(scope="module")
def client(address):
    with httpx.Client(base_url=f"http://{address}", **ALONE) as client:
        yield client


def drawing(width, height):
    """A PNG of one bit per pixel."""
    file = io.BytesIO()
    Image.new("1", (width, height)).save(file, "PNG")
    return file.getvalue()


def test_the_client_of_triton_gets_the_outputs_of_the_model(model, address, rng):
    images = rng.integers(0, 256, (70, *SHAPE), np.uint8)
    expected = model.outputs(images)
    with triton.InferenceServerClient(address) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("tiny-1")
        assert not client.is_model_ready("tiny-2")
        assert client.get_server_metadata()["name"] == "tensorcraft"
        assert client.get_model_repository_index() == [{"name": "tiny-1", "version": "1", "state": "READY"}]
        about = client.get_model_metadata("tiny-1")
        assert about["inputs"] == [{"name": "images", "datatype": "UINT8", "shape": [-1, *SHAPE]}]
        assert about["outputs"] == [{"name": "output_0", "datatype": "FP32", "shape": [-1, 2]}]
        for sent, received in ((True, True), (True, False), (False, True), (False, False)):
            tensor = triton.InferInput("images", images.shape, "UINT8")
            tensor.set_data_from_numpy(images, binary_data=sent)
            asked = [triton.InferRequestedOutput("output_0", binary_data=received)]
            answer = client.infer("tiny-1", [tensor], outputs=asked, request_id="a")
            np.testing.assert_allclose(answer.as_numpy("output_0"), expected, atol=1e-6)
            assert answer.get_response()["id"] == "a"
        # The only version.
        assert client.is_model_ready("tiny-1", "1")
        assert not client.is_model_ready("tiny-1", "2")
        assert client.get_model_metadata("tiny-1", "1") == about
        np.testing.assert_allclose(client.infer("tiny-1", [tensor], "1").as_numpy("output_0"), expected, atol=1e-6)
        # Without outputs, the client asks for all of them as binary data.
        np.testing.assert_allclose(client.infer("tiny-1", [tensor]).as_numpy("output_0"), expected, atol=1e-6)


def test_a_file_gets_the_answer_of_the_command_predict(job, client, tmp_path):
    loaded = load_trained(Path(job.run))
    for level, kind, size in ((220, "JPEG", (50, 40)), (30, "PNG", (33, 90)), (120, "WEBP", (8, 8))):
        path = tmp_path / f"{level}.{kind}"
        path.write_bytes(encoded(level, size, kind))
        (row,) = next(predict_rows.class_rows([str(path)], job, loaded)).to_pylist()
        for answer in (
            client.post("/predict", content=path.read_bytes()),
            client.post("/predict", files={"file": path.open("rb")}),
        ):
            assert answer.status_code == 200
            found = answer.json()
            assert (found["model"], found["labels"]) == ("tiny-1", [row["label"]])
            assert [*found["probabilities"]] == [row["label"], row["second_label"]]
            for label in LABELS:
                assert found["probabilities"][label] == pytest.approx(row[f"probability of {label}"], abs=1e-6)


TEXTS = {"feature_spec": {"text": {"shape": (9,), "dtype": "uint8"}}, "problem": "text_classification"}
KINDS = {
    "multi_label": ("label_rows", MANIFEST | {"problem": "multi_label"}, [{"threshold": 0.6}, {"threshold": 1e-9}]),
    "regression": ("value_rows", MANIFEST | {"problem": "regression", "means": (3, 5), "deviations": (2, 0)}, []),
    "text_classification": ("class_rows", {"label_names": LABELS, **TEXTS}, []),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_problem_gets_the_answer_of_the_command_predict(kind, tmp_path):
    rows, manifest, labels = KINDS[kind]
    builder = "tests.tiny_model:build_by_length" if "text" in kind else "tests.tiny_model:build"
    job = write_served_run(tmp_path / "run", manifest, builder, {"labels": labels})
    served, loaded = load(Service(job), manifest), load_trained(tmp_path / "run")
    path = tmp_path / "file"
    for content in (b"A text.", "Näher als der Rest.".encode()) if "text" in kind else map(encoded, (20, 120)):
        path.write_bytes(content)
        (row,) = next(getattr(predict_rows, rows)([str(path)], job, loaded)).to_pylist()
        example, _ = served.example(content)
        found = served.answer(*served.outputs(example))
        if kind == "regression":
            assert found["values"] == {label: pytest.approx(row[label], abs=1e-5) for label in LABELS}
            continue
        assert "; ".join(found["labels"]) == row["labels" if labels else "label"]
        expected = {label: pytest.approx(row[f"probability of {label}"], abs=1e-6) for label in LABELS}
        assert found["probabilities"] == expected
        assert [*found["probabilities"].values()] == sorted(found["probabilities"].values(), reverse=True)


def test_a_number_that_is_called_like_another_column_keeps_its_prediction(tmp_path):
    manifest = KINDS["regression"][1]
    job = write_served_run(tmp_path / "run", manifest, "tests.tiny_model:build", {"labels": []})
    path = tmp_path / "file"
    path.write_bytes(encoded(20))
    job, loaded = replace(job, label_names=("error", "path")), load_trained(tmp_path / "run")
    (row,) = next(predict_rows.value_rows([str(path)], job, loaded)).to_pylist()
    assert (row["path"], row["error"]) == (str(path), None)
    assert [*row][1:3] == ["predicted error", "predicted path"]


TENSOR = {"name": "images", "datatype": "UINT8", "shape": [1, *SHAPE], "data": [0] * 3072}
BINARY = {**TENSOR, "data": None, "parameters": {"binary_data_size": 3072}}


def asked(tensor=None, **more):
    return json.dumps({"inputs": [TENSOR | (tensor or {})], **more}).encode()


INFER = "/v2/models/tiny-1/infer"
BAD = {
    "no image": ("/predict", b"no image", 422, "The file cannot be used: not a JPEG, PNG, "),
    "empty": ("/predict", b"", 422, "The file cannot be used: empty."),
    "cut off": ("/predict", encoded(9, kind="JPEG")[:500], 422, "The file cannot be used: "),
    "200 megapixels": ("/predict", drawing(20_000, 10_000), 422, "claims too many pixels"),
    "no JSON": (INFER, b"{", 400, "body: Invalid JSON: EOF"),
    "deep JSON": (INFER, b"[" * 100_000, 400, "body: Invalid JSON: recursion limit"),
    "compressed": (INFER, zlib.compress(asked()), 400, "body: Invalid JSON"),
    "no UTF-8": (INFER, b'{"id": "\xff"}', 400, "body: Invalid JSON"),
    "no inputs": (INFER, b"{}", 400, "inputs: Field required."),
    "no shape": (INFER, asked().replace(b"shape", b"shap"), 400, "inputs.0.shape: Field required."),
    "no data": (INFER, asked({"data": None}), 400, "images: expected data, or 3072 bytes after"),
    "two inputs": (INFER, json.dumps({"inputs": [TENSOR] * 2}).encode(), 400, "inputs: List should have at most 1"),
    "other input": (INFER, asked({"name": "x"}), 400, "inputs: expected the input images, got x."),
    "other output": (INFER, asked(outputs=[{"name": "x"}]), 400, "outputs.0.name: Input should be 'output_0'."),
    "other shape": (INFER, asked({"shape": [1, 32, 3]}), 400, "expected [batch, 32, 32, 3], got [1, 32, 3]."),
    "no batch": (INFER, asked({"shape": [0, *SHAPE], "data": []}), 400, "images.shape: expected [batch, 32"),
    "negative shape": (INFER, asked({"shape": [-1, *SHAPE]}), 400, "inputs.0.shape.0: Input should be greater"),
    "other type": (INFER, asked({"datatype": "FP32"}), 400, "inputs.0.datatype: Input should be 'UINT8'."),
    "not a number": (INFER, asked({"data": [float("nan")] * 3072}), 400, "3072 integers from 0 to 255"),
    "too great": (INFER, asked({"data": [256] * 3072}), 400, "expected 3072 integers from 0 to 255"),
    "far too great": (INFER, asked({"data": [2**70] * 3072}), 400, "expected 3072 integers from 0 to 255"),
    "too few": (INFER, asked({"data": [1]}), 400, "images.data: expected 3072 integers from 0 to 255, got 1 values."),
    "ragged": (INFER, asked({"data": [[1], [1, 2]]}), 400, "expected 3072 integers from 0 to 255, got 2 values."),
    "true": (INFER, asked({"data": [True] * 3072}), 400, "expected 3072 integers from 0 to 255"),
    "text": (INFER, asked({"data": ["0"] * 3072}), 400, "expected 3072 integers from 0 to 255"),
    "mixed depths": (INFER, asked({"data": [[0], 0]}), 400, "expected 3072 integers from 0 to 255"),
    "other model": ("/v2/models/x/infer", asked(), 404, "POST /v2/models/x/infer: not found."),
    "other path": ("/v3", b"", 404, "POST /v3: not found."),
    "other method": ("/healthz", b"", 405, "POST /healthz: method not allowed."),
    "too large": ("/predict", b"0" * 2_000_001, 413, "body: expected at most 2,000,000 bytes, got more."),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_a_sentence(case, client):
    path, body, status, expected = BAD[case]
    answer = client.post(path, content=body)
    assert answer.status_code == status
    assert answer.json().keys() == {"error"}
    assert expected in answer.json()["error"]


def test_nested_data_is_read_in_the_order_of_the_shape(model):
    images = np.arange(2 * 3072, dtype=np.uint8).reshape(2, *SHAPE)
    for data in (images.tolist(), images.ravel().tolist()):
        _, found = inference.parse({}, asked({"shape": images.shape, "data": data}), model)
        np.testing.assert_array_equal(found, images)


def test_a_long_text_among_the_data_takes_no_memory(model):
    body = asked({"data": ["x" * 100_000] + [""] * 700})
    tracemalloc.start()
    with pytest.raises(HTTPException, match="integers from 0 to 255"):
        inference.parse({}, body, model)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # An array of texts would have 280 MB.
    assert peak < 5_000_000


@pytest.mark.parametrize("stated", ["x", "-1", "99999", "9" * 5000, "\u00b2"])
def test_a_wrong_length_of_the_json_part_is_refused(stated, client):
    headers = {"Inference-Header-Content-Length": stated.encode("latin-1")}
    answer = client.post(INFER, content=asked(BINARY), headers=headers)
    assert answer.status_code in (400, 431)


def test_binary_data_must_have_the_size_of_the_shape(client):
    begin = asked(BINARY)
    for extra, status in ((3072, 200), (3071, 400), (3073, 400), (0, 400)):
        headers = {"Inference-Header-Content-Length": str(len(begin))}
        assert client.post(INFER, content=begin + bytes(extra), headers=headers).status_code == status


def wait_until(is_so):
    end = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def counted(client):
    """Numbers of requests by status."""
    found = re.findall(r'requests_total\{status="(\d+)"\} (\d+)', client.get("/metrics").text)
    return Counter({status: int(count) for status, count in found})


def test_a_form_without_a_file_is_refused(client):
    before = counted(client)
    headers = {"Content-Type": "multipart/form-data; boundary=a"}
    assert client.post("/predict", content=b"--a--\r\n", headers=headers).status_code == 422
    answer = client.post("/predict", content=b"no form", headers={"Content-Type": "multipart/form-data"})
    assert answer.status_code == 400
    assert "Missing boundary" in answer.json()["error"]
    assert counted(client) - before == {"400": 1, "422": 1}


def opened(address, head):
    """A connection that has sent the head of a request."""
    host, port = address.split(":")
    connection = socket.create_connection((host, int(port)), timeout=300)
    connection.sendall(f"POST /predict HTTP/1.1\r\nHost: {address}\r\n{head}\r\n\r\n".encode())
    return connection


def test_a_body_of_a_gigabyte_is_refused_before_it_is_read(address):
    with opened(address, "Content-Length: 1000000000\r\nExpect: 100-continue") as connection:
        assert b" 413 " in connection.recv(100)


def test_a_stream_is_refused_when_it_is_too_long(address):
    chunk, sent = f"{100_000:x}\r\n".encode() + bytes(100_000) + b"\r\n", 0
    with opened(address, "Transfer-Encoding: chunked") as connection:
        while sent < 1_000_000_000 and not select.select([connection], [], [], 0)[0]:
            sent += connection.send(chunk)
        assert b" 413 " in connection.recv(100)
    assert sent < 1_000_000_000


@pytest.mark.parametrize("kind", ["image/png", "multipart/form-data; boundary=a"])
def test_a_client_that_leaves_is_counted_without_an_error(kind, address, client, caplog):
    before = counted(client)
    with opened(address, f"Content-Length: 1000\r\nContent-Type: {kind}") as connection:
        connection.sendall(b"--a\r\n")
    wait_until(lambda: counted(client) != before)
    assert counted(client) - before == {"499": 1}
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_other_sites_cannot_send_requests(client, address):
    for origin in ("https://evil.example", "http://127.0.0.1:1", "null", "http://["):
        for path in ("/predict", INFER, "/v2/repository/index"):
            answer = client.post(path, content=encoded(30), headers={"Origin": origin})
            assert answer.status_code == 403
            assert answer.json()["error"].startswith(f"Origin: expected {address}, got {origin}.")
    assert client.post("/predict", content=encoded(30), headers={"Origin": f"http://{address}"}).status_code == 200


@pytest.mark.parametrize(("host", "expected"), [("127.0.0.2", 400), ("::1", 400), ("0.0.0.0", 200)])
def test_only_a_server_for_other_machines_accepts_other_hosts(host, expected, model):
    with serving(model, host=host) as address:
        for name, status in ((address, 200), ("localhost:1", 200), ("evil.example", expected)):
            answer = httpx.get(f"http://{address}/healthz", headers={"Host": name}, **ALONE)
            assert answer.status_code == status


def test_health_is_answered_without_a_body(client):
    assert client.head("/healthz").status_code == 200


def test_requests_for_another_host_are_refused(client):
    answer = client.get("/healthz", headers={"Host": "evil.example"})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("Host: expected 127.0.0.1 or localhost, got evil.example.")
    assert client.get("/healthz", headers={"Host": "localhost:1"}).status_code == 200


def test_more_requests_than_allowed_are_refused_and_health_is_still_answered(model):
    image = encoded(220)
    with serving(model, concurrency=1) as address, opened(address, f"Content-Length: {len(image)}") as first:
        first.sendall(image[:10])
        get = f"http://{address}"
        while "active_requests 1.0" not in httpx.get(f"{get}/metrics", **ALONE).text:
            pass
        refused = httpx.post(f"{get}/predict", content=image, **ALONE)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert refused.json() == {"error": "The server is busy. Try again later."}
        assert httpx.get(f"{get}/healthz", **ALONE).status_code == 200
        first.sendall(image[10:])
        assert b" 200 " in first.recv(100)
        assert httpx.post(f"{get}/predict", content=image, **ALONE).status_code == 200
        counts = httpx.get(f"{get}/metrics", **ALONE).text
        assert 'tensorcraft_requests_total{status="200"} 2.0' in counts
        assert 'tensorcraft_requests_total{status="503"} 1.0' in counts


def test_a_request_that_takes_too_long_ends(model):
    with serving(model, timeout_seconds=0.1) as address, opened(address, "Content-Length: 100") as connection:
        answer = connection.recv(1000)
        while not answer.endswith(b"}"):
            answer += connection.recv(1000)
        assert b" 503 " in answer
        assert answer.endswith(b'{"error":"The request took more than 0.1 s."}')


def test_a_stopped_server_answers_requests_that_have_begun(model, caplog):
    image, answers = encoded(220), []
    with serving(model) as address:
        connection = opened(address, f"Content-Length: {len(image)}")
        while "active_requests 1.0" not in httpx.get(f"http://{address}/metrics", **ALONE).text:
            pass
        threading.Timer(0.3, lambda: connection.sendall(image)).start()
        received = threading.Thread(target=lambda: answers.append(connection.recv(100)))
        received.start()
    received.join()
    assert b" 200 " in answers[0]
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{address}/healthz", **ALONE)
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_predictions_are_counted_if_the_run_is_watched(tmp_path):
    served = load(Service(write_served_run(tmp_path / "runs" / "tiny-1", is_watched=True)), MANIFEST)

    def read_counts():
        files = (tmp_path / "watched" / "tiny-1").glob("2*.json")
        return next((json.loads(file.read_text())["counts"] for file in files), {})

    # A prediction that nobody gets is not counted, nor is the size of its file.
    served.outputs(served.example(encoded(20))[0])
    with serving(served, save_counts_seconds=0.1) as address:
        for level in (220, 20, 20):
            httpx.post(f"http://{address}/predict", content=encoded(level), **ALONE)
        assert httpx.post(f"http://{address}{INFER}", content=asked(), **ALONE).status_code == 200
        httpx.post(f"http://{address}/predict", content=b"no image", **ALONE)
        # The server at work saves them, without another request.
        wait_until(lambda: read_counts().get("confidence", {}).get("90% to 100%") == 4)
    counts = read_counts()
    assert counts["label"] == {"<b>light</b>": 1, "dark": 3}
    # Tensors have no files.
    assert counts["size"] == {"32 to 63 pixels": 3}


def test_waiting_requests_become_one_batch():
    sizes = []

    def outputs(inputs):
        if inputs.max() > 100:
            raise ValueError("too great")
        return inputs * 2.0

    async def answers(*inputs):
        batches = Batches(outputs, sizes.append)
        task = asyncio.create_task(batches.run())
        try:
            return await asyncio.gather(*map(batches.outputs, inputs), return_exceptions=True)
        finally:
            task.cancel()

    inputs = [np.full((count, 1), count, np.uint8) for count in (1, 2, 3, 40, 4)]
    for found, given in zip(asyncio.run(answers(*inputs)), inputs, strict=True):
        np.testing.assert_array_equal(found, given * 2)
    # The largest fills two batches, and none is divided to fill another.
    assert sizes == [6, 32, 12]
    # An error reaches the requests of its batch alone.
    inputs = [np.full((30, 1), value, np.uint8) for value in (1, 200, 2)]
    first, second, third = asyncio.run(answers(*inputs))
    assert (first[0], str(second), third[0]) == (2, "too great", 4)
