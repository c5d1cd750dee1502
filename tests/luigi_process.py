"""Luigi as users run it: in a process of its own, on a storage root of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import in_process
import warm

from pipeline.stage_process import IN_PROCESS

PROJECT = Path(__file__).resolve().parent.parent
FAST = ["--Train-epochs", "1", "--Train-global-batch-size", "64", "--Records-train-shards", "3"]
# A model that is trained in a second, where it does not matter which.
TINY = ["--Train-model", "tests.tiny_model:build"]

# Lets the stages run in a child process, as users do.
IN_CHILD = {IN_PROCESS: ""}

# As an ordinary user, for whom permissions hold, but still the owner of what the tests made.
_CAPABILITIES = "-dac_override,-dac_read_search"
WITHOUT_PRIVILEGES = ["setpriv", f"--inh-caps={_CAPABILITIES}", f"--bounding-set={_CAPABILITIES}"] * (os.geteuid() == 0)


class Luigi:
    """Runs ``python -m tasks Report``, as ``make pipeline`` does, on a storage root of its own."""

    def __init__(self, folder: Path, data_dir: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.root = folder / "root"
        self.data_dir = data_dir
        self.config = folder / "extra.ini"
        self.write_config()

    def write_config(self, more: str = "") -> None:
        self.config.write_text(f"[Storage]\nroot = {self.root}\n{more}\n")

    def __call__(self, *args: str, command: tuple[str, ...] = ("-m", "tasks"), **how):
        """Run the pipeline with these arguments; the finished process with its output as text."""
        return self.python(*command, "Report", *args, **how)

    def status(self, *args: str, **how) -> dict[str, dict]:
        """Stage → state and reasons, as ``make status ARGS="--json"`` prints them."""
        done = self.command("status", "--json", *args, **how)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def command(self, name: str, *args: str, **how) -> subprocess.CompletedProcess:
        """Run a command, as ``make`` does, but in this process."""
        return self.here("tasks", name, *args, **how)

    def here(self, module: str, *args: str, cwd: Path = PROJECT, **env: str) -> subprocess.CompletedProcess:
        """Run ``python -m module`` with these arguments in the environment of this root, but in this process."""
        return in_process.run(module, args, cwd=cwd, env=self.environment(env))

    def python(self, *args: str, cwd: Path = PROJECT, **env: str) -> subprocess.CompletedProcess:
        """Run Python with these arguments in the environment of this root."""
        how = {"env": self.environment(env), "cwd": cwd, "timeout": 300}
        # PYTHONPATH is for what has to be there before any library is.
        if args[0] == "-m" and "PYTHONPATH" not in env:
            return warm.run([sys.executable, *args], **how)
        return subprocess.run([sys.executable, *args], capture_output=True, text=True, check=False, **how)

    def start(self, *args: str) -> subprocess.Popen:
        """Start the pipeline without waiting for it."""
        command = [sys.executable, "-m", "tasks", "Report", *args]
        how = {"env": self.environment({}), "cwd": PROJECT, "text": True}
        return warm.WarmPopen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)

    def wait_for(self, pattern: str, process: subprocess.Popen) -> Path:
        """The first path below the root that the pattern finds, once the process has made it."""
        while not (found := next(self.root.glob(pattern), None)):
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.05)
        return found

    def environment(self, more: dict[str, str]) -> dict[str, str]:
        """This process's environment, pointed at this root and this prepared dataset."""
        return {
            **os.environ,
            "LUIGI_CONFIG_PATH": str(self.config),
            "TFDS_DATA_DIR": str(self.data_dir),
            # No test downloads anything, not even where there is a network.
            "HTTP_PROXY": "http://127.0.0.1:9",
            "HTTPS_PROXY": "http://127.0.0.1:9",
            # The process begins with the libraries imported.
            IN_PROCESS: "1",
            **more,
        }

    def copy(self, folder: Path) -> "Luigi":
        """The same artifacts under another root."""
        other = Luigi(folder, self.data_dir)
        shutil.copytree(self.root, other.root)
        return other

    def artifacts(self, kind: str) -> dict[str, float]:
        """Folder → time of its manifest, of every published artifact of a kind."""
        return {path.parent.name: path.stat().st_mtime for path in self.root.glob(f"{kind}/*/manifest.json")}

    def report(self) -> dict:
        return json.loads((self.root / "report" / "report.json").read_text())


def hear_interrupts() -> None:
    """Tests that are started in a shell's background ignore SIGINT, and so would what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
