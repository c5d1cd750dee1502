"""Rules of the code base: import direction, light imports, safe lock files."""

import graphlib
import logging.config
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent

FORBIDDEN_IMPORT = """
[tool.importlinter]
root_packages = ["pipeline", "tasks"]
include_external_packages = true

[[tool.importlinter.contracts]]
name = "tasks does not depend on Luigi"
type = "forbidden"
source_modules = ["tasks"]
forbidden_modules = ["luigi"]
"""


@pytest.fixture
def lint_imports(monkeypatch):
    """Check the contracts of a file, in this process. Returns the exit status of the command ``lint-imports``."""
    from importlinter import cli

    monkeypatch.chdir(PROJECT)
    # import-linter inserts the working directory, and its logging setup would disable all existing loggers.
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(logging.config, "dictConfig", lambda settings: None)
    return lambda path: cli.lint_imports(str(path), no_cache=True, no_logo=True)


def test_imports_follow_the_contracts_in_pyproject(lint_imports, capsys):
    assert lint_imports(PROJECT / "pyproject.toml") == 0, capsys.readouterr().out


def test_a_broken_contract_fails(lint_imports, capsys, tmp_path):
    contracts = tmp_path / "contracts.toml"
    contracts.write_text(FORBIDDEN_IMPORT)
    assert lint_imports(contracts) == 1
    assert "tasks is not allowed to import luigi" in capsys.readouterr().out


def test_no_module_imports_itself_through_others():
    # The contract on cycles sees the modules of one package. This also covers the exceptions to the layers of pipeline.
    import grimp

    graph = grimp.build_graph("pipeline", "tasks", cache_dir=None, exclude_type_checking_imports=True)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    # Raises CycleError, which names the modules.
    assert {"pipeline", "tasks"} <= {*graphlib.TopologicalSorter(imports).static_order()}


def test_only_the_problem_of_texts_asks_whether_something_is_a_text():
    names = re.compile(r"\b(TOKENS|is_text|NEXT_TOKEN|IMAGE_CLASSIFICATION|TEXT_MODELS)\b")
    files = [
        path
        for folder in ("pipeline", "tasks")
        for ending in ("py", "j2")
        for path in PROJECT.glob(f"{folder}/**/*.{ending}")
    ]
    found = {path.relative_to(PROJECT).parent.as_posix() for path in files if names.search(path.read_text())}
    assert found == {"pipeline/problems/next_token"}


def test_importing_the_tasks_stays_light():
    heavy = {"tensorflow", "apache_beam", "keras", "tensorflow_datasets", "numpy", "matplotlib"}
    heavy |= {"jsonschema", "psutil", "pydantic", "requests", "tornado"}
    code = f"import sys, tasks; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PROJECT)
    assert done.stdout.strip() == "[]"


def test_the_folders_of_killed_stages_are_searched():
    from pipeline.artifacts import layout
    from tasks import Export, Records, Report, Source, Train
    from tasks.process import lock

    kinds = {stage.kind for stage in (Source, Records, Train, Export)}
    # Nightly works in the history folder of Report. Earlier versions made artifacts of the past kinds.
    assert kinds | {f"{Report.kind}/history", layout.DETERMINISM, *layout.PAST_KINDS} <= set(lock._PLACES)


def pinned_versions(lock: str) -> dict[str, set[str]]:
    """Versions per package of a lock file. A package has several if they differ between Python versions."""
    versions: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([a-z0-9._-]+)==(\S+)", (PROJECT / lock).read_text(), re.MULTILINE):
        versions.setdefault(name, set()).add(version)
    return versions


def test_the_locks_have_hashes_and_name_no_index():
    locks = {path.name: path.read_text() for path in PROJECT.glob("requirements-*.lock")}
    names = ("cpu", "gpu", "jax", "jax-gpu", "jax-tpu", "dask", "dev", "optional", "uv")
    assert locks.keys() == {f"requirements-{name}.lock" for name in names}
    for lock, text in locks.items():
        # With a hash for one package, pip and uv require a hash for each package.
        lines = re.findall(r"^[a-z].*", text, re.MULTILINE)
        assert all("==" in line and line.endswith("\\") for line in lines), lock
        assert text.count("--hash=sha256:") >= len(pinned_versions(lock)) > 0, lock
        assert "://" not in text, lock
        assert "--index" not in text, lock


def test_the_locks_of_a_run_contain_no_development_packages_and_agree_with_the_development_lock():
    from packaging.requirements import Requirement

    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    requested = {Requirement(text).name for text in project["dependency-groups"]["dev"]}
    required = {Requirement(text).name for text in project["project"]["dependencies"]}
    development = pinned_versions("requirements-dev.lock")
    assert {"pytest", "selenium", "mlflow-skinny"} <= requested <= development.keys()
    for extra in ("cpu", "gpu", "jax", "jax-gpu", "jax-tpu"):
        production = pinned_versions(f"requirements-{extra}.lock")
        assert required <= production.keys(), extra
        # The extras for JAX install it for a run.
        assert not (requested - required - {"jax"}) & production.keys(), extra
        different = {name for name in production.keys() & development if development[name] - production[name]}
        assert not different, extra


def test_no_command_of_users_installs_what_only_tests_need():
    needs = {}
    for line in (PROJECT / "Makefile").read_text().splitlines():
        if found := re.match(r"([a-z-]+): ([^#]*)## ", line):
            needs[found[1]] = found[2].split()
    ours = {"test", "test-slow", "test-faults", "mutation-test", "cluster-test", "soak", "lint", "format", "docs"}
    assert {name for name, required in needs.items() if "setup-dev" in required} <= ours
    wanted = pinned_versions("requirements-optional.lock")
    assert {"ai-edge-litert", "tensorboard-plugin-profile", "boto3"} <= wanted.keys()
    assert not {"pytest", "selenium", "ruff"} & wanted.keys()
