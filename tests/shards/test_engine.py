"""Where the Beam job runs: what is missing is named before any work, and workers that differ end the job."""

import json
import socket
import subprocess
import sys

import pytest
from luigi_process import PROJECT

from pipeline.artifacts.manifest import read_manifest
from pipeline.errors import DamagedArtifactError, EngineUnavailableError, SettingsError, WorkerDiedError
from pipeline.settings.data import RecordsSettings
from pipeline.shards.shared import SharedFolder
from tasks.config_files import settings_in


def setup_module() -> None:
    global engine, workers, try_engine
    from pipeline.shards import engine, workers
    from pipeline.shards.engine import try_engine


SETTINGS = sorted((PROJECT / "experiments" / "engines").glob("*.ini"))
DASK = "apache_beam.runners.dask.dask_runner.DaskRunner"


def require(runner: str, options: str) -> str:
    settings = RecordsSettings(runner=runner, runner_options=options)
    return engine.require_engine(settings, engine.make_runner(settings))


@pytest.fixture
def silent_port():
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        yield asked.getsockname()[1]


@pytest.fixture
def open_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("runner", "flag", "name"),
    [
        ("FlinkRunner", "flink_job_server_jar", "flink"),
        ("SparkRunner", "spark_job_server_jar", "spark"),
        ("PrismRunner", "prism_location", "prism"),
    ],
)
@pytest.mark.parametrize("given", ["", "/not/there.jar"])
def test_software_that_beam_would_download_is_named(runner, flag, name, given):
    options = f"--{flag}={given}" if given else ""
    with pytest.raises(SettingsError, match=rf"--{flag}=.*make engine ENGINE={name}"):
        require(runner, options)


def test_missing_packages_of_dask_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam.runners.dask.dask_runner", None)
    with pytest.raises(SettingsError, match="make engine ENGINE=dask"):
        engine.make_runner(RecordsSettings(runner=DASK))


@pytest.mark.parametrize("path", SETTINGS, ids=lambda path: path.stem)
def test_the_settings_for_an_engine_name_what_make_builds(path):
    sections = settings_in([path])
    assert set(sections) == {"Records"}
    settings = RecordsSettings(**sections["Records"])
    assert engine.make_options(settings, engine.make_runner(settings))
    parts = [flag.partition("=")[2] for flag in settings.beam_flags() if "=build/" in flag]
    plan = ["make", "--dry-run", "--always-make", "engine", f"ENGINE={path.stem}"]
    done = subprocess.run(plan, cwd=PROJECT, capture_output=True, text=True, check=True)
    assert all(part in done.stdout for part in parts)


def test_there_are_settings_for_every_engine():
    named = {RecordsSettings(**settings_in([path])["Records"]).runner.rpartition(".")[2] for path in SETTINGS}
    assert named == {*engine.ENGINES, "FnApiRunner"}


def test_the_manifest_says_which_runner_wrote_the_records_in_how_many_processes(small_records):
    assert read_manifest(small_records)["engine"] == {"runner": "FnApiRunner", "hosts": 1, "processes": 1}


def test_workers_get_the_path_of_the_dataset_in_any_environment(monkeypatch, tmp_path):
    code = "from tasks.data import Source; print(Source().location().tfds_data_dir)"
    monkeypatch.setenv("TFDS_DATA_DIR", "prepared")
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / "prepared")


@pytest.mark.parametrize(
    ("runner", "part", "master"),
    [
        ("FlinkRunner", "flink_job_server_jar", "--flink_master=localhost:{}"),
        ("FlinkRunner", "flink_job_server_jar", "--flink_master=http://127.0.0.1:{}"),
        ("SparkRunner", "spark_job_server_jar", "--spark_master_url=spark://127.0.0.1:{}"),
        # Of several masters the first.
        ("SparkRunner", "spark_job_server_jar", "--spark_master_url=spark://127.0.0.1:{},127.0.0.2:1"),
        (DASK, "", "--dask_client_address=tcp://127.0.0.1:{}"),
        ("FlinkRunner", "", "--job_endpoint=127.0.0.1:{}"),
    ],
)
def test_an_engine_that_does_not_answer_is_named_and_one_that_does_is_taken(
    runner, part, master, silent_port, open_port, tmp_path
):
    jar = tmp_path / "job-server.jar"
    jar.touch()
    options = f"--{part}={jar} " if part else ""
    with pytest.raises(EngineUnavailableError, match=rf"nothing answers at --.*{silent_port}"):
        require(runner, options + master.format(silent_port))
    assert str(open_port) in require(runner, options + master.format(open_port))


@pytest.mark.parametrize(
    ("engine", "master"),
    [
        *(("flink", master) for master in ("[local]", "[auto]", "[collection]")),
        *(
            ("spark", master)
            for master in ("local", "local[2]", "local-cluster[2,1,1024]", "yarn", "k8s://https://a:1")
        ),
    ],
)
def test_an_engine_that_beam_starts_or_configuration_finds_is_not_looked_for(engine, master, tmp_path):
    (tmp_path / "jar").touch()
    flag = {"flink": "flink_master", "spark": "spark_master_url"}[engine]
    options = f"--{engine}_job_server_jar={tmp_path / 'jar'} --{flag}={master}"
    assert not require(f"{engine.capitalize()}Runner", options)


@pytest.mark.parametrize("address", ["cluster.example", "[cluster", "there:port", ":8081"])
def test_an_address_without_a_host_or_port_is_refused(address, tmp_path):
    (tmp_path / "jar").touch()
    with pytest.raises(SettingsError, match="--flink_master=<host>:<port>"):
        require("FlinkRunner", f"--flink_job_server_jar={tmp_path / 'jar'} --flink_master={address}")


def test_a_runner_of_this_machine_needs_nothing_and_is_not_tried(tmp_path):
    assert try_engine(RecordsSettings(), tmp_path) == "Beam's FnApiRunner"
    assert not list(tmp_path.iterdir())


def test_a_workers_error_is_read_from_the_text_of_an_engine():
    text = (
        "java.lang.RuntimeException: Error received from SDK harness: Traceback (most recent call last):\n"
        '  File "job.py", line 90, in read_batches\n'
        "pipeline.errors.DamagedArtifactError: cifar10: expected version 3.0.2 [while running 'Write blocks-7']\n"
        "\n\tat org.apache.beam.runners.fnexecution.control.FnApiControlClient\n"
    )
    with pytest.raises(DamagedArtifactError, match=r"^cifar10: expected version 3\.0\.2$"):
        raise engine.raised_by_worker(text)
    assert engine.raised_by_worker("RuntimeError: pipeline.errors.DamagedArtifactError: in a sentence") is None
    assert engine.raised_by_worker("pipeline.errors.sys: not an error of ours") is None
    # It takes more than a message.
    assert engine.raised_by_worker("pipeline.errors.HardwareMismatchError: requested a tpu") is None
    # What was raised of another error is the last in the text.
    assert isinstance(engine.raised_by_worker(f"pipeline.errors.StorageError: full\n\n{text}"), DamagedArtifactError)
    assert not isinstance(engine.raised_by_worker(text), WorkerDiedError)


@pytest.fixture
def meeting(tmp_path):
    shared = SharedFolder(str(tmp_path))
    workers.expect(shared)
    workers._sign_in.cache_clear()
    return shared


def test_a_worker_with_the_same_code_and_packages_signs_in_once(meeting):
    workers.sign_in(meeting)
    workers.sign_in(meeting)
    assert workers.signed_in(meeting) == {"hosts": 1, "processes": 1}


@pytest.mark.parametrize("what", ["packages", "code"])
def test_a_worker_that_differs_does_not_sign_in(meeting, what):
    expected = json.loads(meeting.read("expected.json"))
    if what == "packages":
        expected["numpy"], said = "1.0", r"numpy [\d.]+ instead of 1\.0"
    else:
        expected["code of the project"], said = "0" * 12, r"code of the project \w{12} instead of 000000000000"
    meeting.write("expected.json", json.dumps(expected).encode())
    with pytest.raises(EngineUnavailableError, match=rf"Beam worker on \S+ .*differs.*{said}"):
        workers.sign_in(meeting)
    assert workers.signed_in(meeting)["processes"] == 0


def test_a_worker_that_does_not_see_the_storage_root_says_so(tmp_path):
    with pytest.raises(EngineUnavailableError, match=r"cannot read .*Put \[Storage\] root on a shared file system"):
        workers.sign_in(SharedFolder(str(tmp_path / "elsewhere")))
