"""The child process that runs the stages: answers, errors, and its end in every way."""

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from luigi_process import FAST, IN_CHILD, PROJECT, TINY, Luigi

from pipeline import progress, stage_process
from pipeline.errors import HardwareMismatchError, SettingsError, TimeLimitError, WorkerDiedError
from pipeline.stage_process import describe_error, in_child, of_class, rebuild_error, to_json
from pipeline.training.process_group import ProcessGroup
from tasks.process import interrupt


@pytest.fixture(autouse=True)
def child(monkeypatch, tmp_path):
    """A real child, which finds the functions below, and is ended after the test."""
    monkeypatch.setenv(stage_process.IN_PROCESS, "")
    (tmp_path / "functions_of_a_test.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    stage_process.close_child()


FUNCTIONS = """
import ctypes, logging, os, signal, subprocess, sys, time
from pathlib import Path
from pipeline import progress
from pipeline.training.process_group import ProcessGroup
from pipeline.errors import HardwareMismatchError, SettingsError

def pid():
    return os.getpid()

def variable(name: str):
    return os.environ.get(name)

def kinds(path: Path, several: tuple[int, list], group: ProcessGroup, text_by_name: dict[str, str]):
    arguments = path, several, group, text_by_name
    return {"kinds": [type(one).__name__ for one in arguments], "values": arguments}

def group(number: int) -> ProcessGroup:
    return ProcessGroup(2, number, "a", 3)

def say():
    logging.getLogger("pipeline.test").info("logged")
    logging.getLogger("apache_beam.test").info("not logged")
    progress.report("Epoch 1/1", 1, 2, "images")
    print("printed")
    os.write(2, b"I0000 00:00:1 native chatter\\n")
    os.write(2, b"fully_quantize: 0, inference_type: 6, input_inference_type: FLOAT32\\n")
    os.write(2, b"INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\\n")
    os.write(2, b"a native line\\n")

def refuse():
    try:
        raise SettingsError("a wrong setting")
    except SettingsError as error:
        # As Beam does.
        raise RuntimeError("wrapped") from error

def mismatch():
    raise HardwareMismatchError("no device", {"device": "gpu"})

def fail(path):
    open(path)

def defect():
    raise KeyError("name")

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def wait(path):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open(path, "w").write(str(child.pid))
    time.sleep(600)

def start(path):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open(path, "w").write(str(child.pid))

def give():
    return {1, 2}

def environment():
    return {name: value for name, value in os.environ.items() if name.startswith("KERAS_")}

def wrap(path):
    try:
        wait(path)
    except KeyboardInterrupt:
        raise RuntimeError("wrapped")

def swallow(path):
    try:
        wait(path)
    except KeyboardInterrupt:
        time.sleep(600)

def ignore(path):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    wait(path)
"""


def call(name, **arguments):
    return in_child(f"functions_of_a_test:{name}", arguments)


def has_ended(pid) -> bool:
    """Whether a process is gone, or at most waits for init to ask how it ended."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_one_child_serves_all_calls():
    assert call("pid") == call("pid") != os.getpid()


def test_arguments_and_the_result_have_the_classes_of_the_annotations():
    given = {"path": Path("a"), "several": (1, [2.5, None]), "group": ProcessGroup(2, 1, "a", 3)}
    answer = call("kinds", **given, text_by_name={"path": "x"})
    assert answer["kinds"] == ["PosixPath", "tuple", "ProcessGroup", "dict"]
    plain = ["a", [1, [2.5, None]], {"processes": 2, "rank": 1, "host": "a", "port": 3}, {"path": "x"}]
    assert answer["values"] == plain
    assert in_child("functions_of_a_test:group", {"number": 1}, returns=ProcessGroup) == given["group"]


def test_an_argument_of_another_kind_is_refused_in_the_child():
    with pytest.raises(RuntimeError, match=r"(?s)ValidationError: .*should be a valid integer"):
        call("group", number="x")
    assert call("pid")


def test_a_child_with_other_devices_or_another_backend_is_another_process():
    first = call("pid")
    other = in_child("functions_of_a_test:pid", {}, cpu_devices=2)
    own = in_child("functions_of_a_test:pid", {}, cpu_devices=2, in_new_process=True)
    assert len({first, other, own, call("pid")}) == 4
    assert not any(psutil.pid_exists(one) for one in (first, other, own))


@pytest.mark.parametrize(("flags", "expected"), [({"avx2"}, "1"), ({"avx2", "avx512_bf16"}, None)])
def test_the_child_uses_onednn_where_tensorflow_leaves_it_off(monkeypatch, flags, expected):
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    monkeypatch.setattr("pipeline.machine.cpu_flags", lambda: flags)
    asked = {"name": "TF_ENABLE_ONEDNN_OPTS"}
    assert in_child("functions_of_a_test:variable", asked, in_new_process=True) == expected


def test_variables_of_keras_do_not_reach_the_child(monkeypatch):
    for name, value in {"KERAS_BACKEND": "jax", "KERAS_MAX_EPOCHS": "1", "KERAS_MAX_STEPS_PER_EPOCH": "1"}.items():
        monkeypatch.setenv(name, value)
    assert call("environment") == {"KERAS_BACKEND": "tensorflow"}


def test_variables_of_keras_do_not_end_a_stage_in_this_process_early(monkeypatch):
    variables = {"KERAS_BACKEND": "tensorflow", "KERAS_MAX_EPOCHS": "1", stage_process.IN_PROCESS: "1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert call("environment") == {"KERAS_BACKEND": "tensorflow"}


def test_log_records_progress_and_prints_appear_in_the_parent(caplog, monkeypatch):
    heard = []
    monkeypatch.setattr(progress, "_listeners", [lambda *values: heard.append(values)])
    with caplog.at_level(logging.INFO):
        call("say")
        stage_process.close_child()
    assert ("pipeline.test", logging.INFO, "logged") in caplog.record_tuples
    messages = [record.getMessage() for record in caplog.records]
    assert set(messages) == {"logged", "printed", "a native line"}
    assert heard == [("Epoch 1/1", 1, 2, "images")]


def test_errors_for_the_user_are_raised_as_they_were():
    with pytest.raises(SettingsError, match="a wrong setting"):
        call("refuse")
    with pytest.raises(HardwareMismatchError) as raised:
        call("mismatch")
    assert raised.value.mismatch == {"device": "gpu"}


def test_other_errors_have_the_traceback_of_the_child(tmp_path):
    with pytest.raises(RuntimeError, match="KeyError: 'name'") as raised:
        call("defect")
    assert "in defect" in raised.value.__notes__[0]
    with pytest.raises(FileNotFoundError) as raised:
        call("fail", path=str(tmp_path / "absent"))
    assert (raised.value.errno, raised.value.filename) == (errno.ENOENT, str(tmp_path / "absent"))


def test_causes_of_an_error_are_rebuilt():
    error = ValueError("outer")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device", "/a")
    rebuilt = rebuild_error(describe_error(error))
    assert str(rebuilt) == "ValueError: outer"
    assert (rebuilt.__cause__.errno, rebuilt.__cause__.filename) == (errno.ENOSPC, "/a")


def test_a_request_survives_json():
    group = ProcessGroup(2, 1, "a", 3)
    assert of_class(ProcessGroup, json.loads(to_json(group))) == group


def test_a_result_that_is_no_data_is_an_error():
    with pytest.raises(RuntimeError, match="TypeError: Cannot serialize set to JSON"):
        call("give")
    assert call("pid") == stage_process._children[os.getpid()].process.pid


def test_an_idle_child_whose_parent_ends_leaves_no_process(tmp_path):
    call("start", path=str(tmp_path / "pid"))
    stage_process._children[os.getpid()].process.stdin.close()
    deadline = time.monotonic() + 300
    while not has_ended(int((tmp_path / "pid").read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_child_that_was_killed_is_not_killed_again(monkeypatch):
    with pytest.raises(WorkerDiedError):
        call("die")
    killed = []
    monkeypatch.setattr(os, "killpg", lambda *about: killed.append(about))
    stage_process.close_child()
    assert not killed


def test_an_interrupt_that_a_library_wraps_ends_the_child_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(stage_process, "GRACE_SECONDS", 300.0)
    call("pid")
    child = stage_process._children[os.getpid()]
    threading.Thread(target=end_when, args=(tmp_path / "pid", child.process)).start()
    with pytest.raises(RuntimeError, match=r"exit code 143"):
        call("wrap", path=str(tmp_path / "pid"))


def end_when(path, process):
    while not path.exists() or not path.read_text():
        time.sleep(0.05)
    process.terminate()
    # A child that waits for another job would let the test wait for ever.
    try:
        process.wait(120)
    except subprocess.TimeoutExpired:
        process.kill()


def test_a_child_that_dies_is_named_with_its_signal_and_replaced():
    with pytest.raises(WorkerDiedError, match=r"ended by SIGKILL.* Finished stages and epochs are kept"):
        call("die")
    assert call("pid")


def test_the_flag_calls_the_function_in_this_process(monkeypatch):
    monkeypatch.setenv(stage_process.IN_PROCESS, "1")
    assert in_child("os:getpid", {}) == os.getpid()


def end_limit_when(path):
    """Let the time of a limit be over as soon as the child is at work, however long its start takes."""
    while not path.exists() or not path.read_text():
        time.sleep(0.05)
    signal.setitimer(signal.ITIMER_REAL, 0.01)


@pytest.mark.parametrize("how", ["wait", "swallow", "ignore"])
def test_a_time_limit_terminates_or_kills_the_child_with_all_that_it_started(tmp_path, monkeypatch, caplog, how):
    monkeypatch.setattr(stage_process, "GRACE_SECONDS", 1.0 if how == "ignore" else 120.0)
    monkeypatch.setattr(stage_process, "_RESEND_SECONDS", 0.5)
    pid_of_its_child = tmp_path / "pid"
    caplog.set_level(logging.INFO)
    before = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT)}
    interrupt.listen()
    threading.Thread(target=end_limit_when, args=(pid_of_its_child,)).start()
    try:
        with pytest.raises(TimeLimitError, match=r"\[Train\] time_limit_seconds"), interrupt.time_limit("Train", 300):
            call(how, path=str(pid_of_its_child))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    pid = int(pid_of_its_child.read_text())
    while not has_ended(pid):
        time.sleep(0.05)
    messages = " ".join(record.getMessage() for record in caplog.records)
    assert ("functions_of_a_test.py" in messages) == (how == "ignore"), "where it hangs"


PARENT = """
import sys
from pipeline.stage_process import in_child
from tasks.process import console

if __name__ == "__main__":
    console.configure()
    in_child("functions_of_a_test:wait", {"path": sys.argv[1]})
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_no_process_outlives_the_parent_however_it_ends(tmp_path, name):
    (tmp_path / "parent_of_a_test.py").write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), str(tmp_path)])}
    command = [sys.executable, "-m", "parent_of_a_test", str(tmp_path / "pid")]
    parent = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert parent.poll() is None, parent.stderr.read()
        time.sleep(0.05)
    children = psutil.Process(parent.pid).children(recursive=True)
    assert len(children) == 2
    parent.send_signal(getattr(signal, name))
    said = parent.communicate(timeout=300)[1]
    assert parent.returncode == -(signal.SIGKILL if name == "SIGKILL" else signal.SIGINT)
    assert not psutil.wait_procs(children, timeout=300)[1]
    assert "Traceback" not in said


WATCHED = """
import atexit, sys
from tasks.__main__ import main

heavy = {"tensorflow", "keras", "jax", "apache_beam", "tensorflow_datasets"}
atexit.register(lambda: print("imported:", sorted(heavy & sys.modules.keys())))
main()
"""


@pytest.mark.slow
def test_a_whole_run_imports_no_numerical_library_in_luigis_process(tiny_tfds, tmp_path):
    luigi = Luigi(tmp_path, tiny_tfds)
    done = luigi.python("-c", WATCHED, "Report", *FAST, *TINY, **IN_CHILD)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported: []"
    # No line of a native library is shown.
    assert not [line for line in done.stderr.splitlines() if line[2:3] != ":"]
