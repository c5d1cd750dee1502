"""Clusters on this machine's loopback: a Flink, Spark or Dask of several processes, as on several machines.

Python workers are processes of their own, started by the engine as on machines of a cluster (``PROCESS``), without the
environment of the process that submits a job.
"""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

PARTS = Path(__file__).parent.parent / "build" / "engines"
_START_SECONDS = 90
# What Java 17 keeps from libraries that are older than it is.
_OPENED = ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "text", "time", "util", "util.concurrent")
_JAVA = [
    "java",
    "-Xmx768m",
    *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED),
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("sun.nio.ch", "sun.nio.cs", "sun.util.calendar")),
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
]


@dataclass
class Cluster:
    """``runner`` and ``options`` as [Records] has them; ``workers`` of its machines, each with one place to work."""

    runner: str
    options: str
    folder: Path
    workers: int = 1
    #: A folder that is empty, and cannot be written, for all processes of the cluster: as on other machines.
    hidden: Path | None = None
    processes: list[subprocess.Popen] = field(default_factory=list)
    #: Name → state of each job, as the engine itself tells; None where it does not.
    jobs: Callable[[], dict[str, str]] | None = None

    def start(self, name: str, *command: str | Path, **environment: str) -> subprocess.Popen:
        """Start a process of the cluster, its output in a file of its name."""
        kept = {key: value for key, value in os.environ.items() if key != "TFDS_DATA_DIR"}
        if self.hidden:
            hide = f'mount -t tmpfs -o ro,size=4k none "{self.hidden}" && exec "$@"'
            command = ("unshare", "--mount", "sh", "-c", hide, "sh", *command)
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(part) for part in command], env={**kept, **environment}, stdout=log, stderr=subprocess.STDOUT
            )
        self.processes.append(process)
        return process

    def python_workers(self) -> list[psutil.Process]:
        """The processes in which blocks are written."""
        below = [psutil.Process(process.pid) for process in self.processes if process.poll() is None]
        found = [child for process in below for child in process.children(recursive=True)]
        # Of the engines, and of Dask's nannies.
        return [process for process in found if re.search(r"shards\.workers|spawn_main", " ".join(_command(process)))]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not _holds(condition):
            logs = "\n".join(f"{log.name}: {log.read_text()[-800:]}" for log in self.folder.glob("*.log"))
            assert time.monotonic() < deadline, f"the cluster did not start:\n{logs}"
            time.sleep(0.2)

    def stop(self) -> None:
        below = [child for process in self.processes for child in _children(process.pid)]
        for process in self.processes:
            process.kill()
            process.wait()
        for child in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


def _command(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return process.cmdline()
    return []


def _children(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def _holds(condition: Callable[[], bool]) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return condition()
    return False


def free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return asked.getsockname()[1]


def is_open(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


def answer(port: int, path: str) -> dict:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}{path}", timeout=5) as told:
        return json.load(told)


@contextlib.contextmanager
def running(name: str, folder: Path, workers: int = 2, *, hiding: Path | None = None) -> Iterator[Cluster]:
    """A cluster of an engine with so many workers, stopped at the end; none of it sees the folder that is hidden."""
    if hiding and subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no mount namespace of one's own is available here")
    cluster = Cluster("", "", folder, workers, hiding)
    try:
        _START[name](cluster)
        yield cluster
    finally:
        cluster.stop()


def part(name: str) -> Path:
    path = PARTS / name
    if not path.is_file():
        pytest.skip(f"{path} is not there: make engine ENGINE={path.stem}")
    return path


def _flink(cluster: Cluster) -> None:
    jar, rest = part("flink.jar"), free_port()
    settings = {
        "jobmanager.rpc.address": "127.0.0.1",
        "jobmanager.rpc.port": free_port(),
        "jobmanager.bind-host": "127.0.0.1",
        "blob.server.port": free_port(),
        # Without it a job ends with the first worker that does.
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": 3,
        "restart-strategy.fixed-delay.delay": "1s",
        "rest.address": "127.0.0.1",
        "rest.bind-address": "127.0.0.1",
        "rest.port": rest,
        "taskmanager.bind-host": "127.0.0.1",
        "taskmanager.host": "127.0.0.1",
        "taskmanager.numberOfTaskSlots": 1,
        "taskmanager.cpu.cores": 1,
        "taskmanager.memory.framework.heap.size": "128m",
        "taskmanager.memory.framework.off-heap.size": "128m",
        "taskmanager.memory.task.heap.size": "384m",
        "taskmanager.memory.task.off-heap.size": "0m",
        "taskmanager.memory.network.min": "64m",
        "taskmanager.memory.network.max": "64m",
        "taskmanager.memory.managed.size": "128m",
        "taskmanager.memory.jvm-metaspace.size": "256m",
        "taskmanager.memory.jvm-overhead.min": "64m",
        "taskmanager.memory.jvm-overhead.max": "64m",
    }
    lines = (f"{name}: {value}\n" for name, value in settings.items())
    (cluster.folder / "flink-conf.yaml").write_text("".join(lines))
    run = (*_JAVA, "-cp", jar)
    entry = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
    cluster.start("jobmanager", *run, entry, "--configDir", cluster.folder)
    for number in range(cluster.workers):
        entry = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
        cluster.start(f"taskmanager{number}", *run, entry, "--configDir", cluster.folder)
    cluster.wait_for(lambda: answer(rest, "/overview")["slots-available"] == cluster.workers)
    cluster.runner = "FlinkRunner"
    flags = f"--flink_job_server_jar={jar} --flink_master=127.0.0.1:{rest} --parallelism={cluster.workers}"
    cluster.options = f"{flags} {_process_flags(cluster)}"
    cluster.jobs = lambda: {job["jid"]: job["state"] for job in answer(rest, "/jobs/overview")["jobs"]}


def _spark(cluster: Cluster) -> None:
    jar, port, page = part("spark.jar"), free_port(), free_port()
    home = cluster.folder / "spark"
    # Where Spark looks for itself when it starts an executor.
    (home / "jars").mkdir(parents=True)
    (home / "jars" / "spark.jar").symlink_to(jar)
    place = {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.12", "SPARK_LOCAL_IP": "127.0.0.1"}
    run, host = (*_JAVA, "-cp", jar), ("--host", "127.0.0.1")
    entry = "org.apache.spark.deploy.master.Master"
    cluster.start("master", *run, entry, *host, "--port", str(port), "--webui-port", str(page), **place)
    cluster.wait_for(lambda: is_open(port))
    for number in range(cluster.workers):
        entry = "org.apache.spark.deploy.worker.Worker"
        work = (*host, "--cores", "1", "--memory", "1g", "--work-dir", cluster.folder / f"work{number}")
        cluster.start(f"worker{number}", *run, entry, *work, f"spark://127.0.0.1:{port}", **place)
    cluster.wait_for(lambda: answer(page, "/json/")["aliveworkers"] == cluster.workers)
    cluster.runner = "SparkRunner"
    cluster.options = (
        f"--spark_job_server_jar={jar} --spark_master_url=spark://127.0.0.1:{port} {_process_flags(cluster)}"
    )

    def jobs() -> dict[str, str]:
        told = answer(page, "/json/")
        return {app["id"]: app["state"] for app in [*told["activeapps"], *told["completedapps"]]}

    cluster.jobs = jobs


def _process_flags(cluster: Cluster) -> str:
    """The flags that name the command of Python workers: what tensorcraft-worker runs, by this interpreter."""
    command = cluster.folder / "worker"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pipeline.shards.workers "$@"\n')
    command.chmod(0o755)
    return f"--environment_type=PROCESS --environment_option=process_command={command}"


def _dask(cluster: Cluster) -> None:
    pytest.importorskip("distributed", reason="make engine ENGINE=dask")
    address = f"tcp://127.0.0.1:{free_port()}"
    run = (sys.executable, "-m", "dask")
    quiet = ("--host", "127.0.0.1", "--no-dashboard")
    cluster.start("scheduler", *run, "scheduler", *quiet, "--port", address.rpartition(":")[2])
    cluster.wait_for(lambda: is_open(int(address.rpartition(":")[2])))
    for number in range(cluster.workers):
        place = ("--local-directory", cluster.folder / f"work{number}")
        cluster.start(f"worker{number}", *run, "worker", address, *quiet, "--nthreads", "1", *place)
    from distributed import Client

    with Client(address, timeout=_START_SECONDS) as client:
        client.wait_for_workers(cluster.workers, timeout=_START_SECONDS)
    cluster.runner = "apache_beam.runners.dask.dask_runner.DaskRunner"
    cluster.options = f"--dask_client_address={address} --dask_partition_size=1"


def _prism(cluster: Cluster) -> None:
    """One process, which Beam starts with each job."""
    cluster.runner, cluster.options = "PrismRunner", f"--prism_location={part('prism')}"


def _processes(cluster: Cluster) -> None:
    """Beam's own runner with processes, which need no cluster."""
    cluster.runner = "FnApiRunner"
    cluster.options = f"--direct_running_mode=multi_processing --direct_num_workers={cluster.workers}"


_START = {"flink": _flink, "spark": _spark, "dask": _dask, "prism": _prism, "multi_processing": _processes}
ENGINES = tuple(_START)
