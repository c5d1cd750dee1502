"""The house's rules: who may import whom, and what stays light."""

import ast
import graphlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PROJECT = Path(__file__).resolve().parent.parent

# Each module or package of pipeline may import those of ours that are named.
LEAVES = {
    *(
        f"config/{name}"
        for name in ("augment", "data", "experiment", "own_code", "refusal", "report", "stage", "storage", "training")
    ),
    "chatter",
    "errors",
    "installed",
    "progress",
    "artefacts/fingerprint",
    "artefacts/layout",
    "artefacts/manifest",
    "artefacts/own_code",
    "artefacts/space",
    "artefacts/staleness",
    "artefacts/syntax",
    "hardware/words",
    "networks/words",
    "problems/units",
    "problems/words",
    "records/features",
    "records/form",
    "records/keys",
    "shards/presence",
    "shards/splits",
    "sources/listing",
    "sources/words",
    "runs/words",
    "training/words",
}
DIRECTION = {
    "errors": set(),
    "installed": set(),
    "config": {"config", "errors", "installed"},
    "progress": set(),
    "chatter": set(),
    "machine": set(),
    # The spec of what examples hold, and their keys, are the records'.
    "sources": {"config", "errors", "machine", "progress", "records", "sources"},
    "records": {"config", "records"},
    "shards": {"artefacts", "config", "errors", "progress", "records", "remote", "shards", "sources"},
    "augmentation": {"augmentation", "config"},
    # What of the records is input and what is label says the problem.
    "columns": {"errors", "machine", "problems", "records"},
    "stream": {"augmentation", "columns", "errors", "machine", "problems", "records"},
    "problems": {"config", "networks", "problems", "records", "runs"},
    "networks": {"errors", "installed", "networks", "problems"},
    "hardware": {"config", "errors", "hardware", "machine"},
    "training": {
        "artefacts",
        "augmentation",
        "chatter",
        "columns",
        "config",
        "errors",
        "hardware",
        "machine",
        "networks",
        "problems",
        "progress",
        "runs",
        "stream",
        "training",
    },
    # What verifies an artefact reads it as the stream does.
    "artefacts": {"artefacts", "errors", "installed", "records", "stream"},
    "remote": {"artefacts", "errors", "progress", "remote"},
    "runs": {"artefacts", "errors", "networks", "problems", "records", "runs", "stream"},
    "report": {"artefacts", "errors", "problems", "report", "runs"},
    "predict": {"config", "errors", "predict", "problems", "records", "runs", "shards", "sources"},
}
# The same of the packages of the report; what lies beside them may import all.
REPORT = {
    "facts": {"facts"},
    "wording": {"facts", "wording"},
    "drawings": {"drawings", "facts"},
}
THIRD_PARTY = {
    "luigi": {"tasks"},
    "apache_beam": {"predict", "shards"},
    "tensorflow_datasets": {"sources", "shards"},
    "tensorflow": {
        "predict",
        "sources",
        "records",
        "augmentation",
        "stream",
        "problems",
        "networks",
        "hardware",
        "training",
        "runs",
        "artefacts",
    },
    # What only that runtime needs: there Keras's distribution is the strategy.
    "jax": {"hardware"},
    "jaxlib": {"hardware"},
    "keras": {"columns", "hardware", "networks", "predict", "problems", "training", "runs"},
    "jinja2": {"report"},
    "prometheus_client": {"tasks"},
    "requests": {"shards", "sources", "tasks"},
    "matplotlib": {"report"},
    "PIL": {"report", "sources"},
    "pydantic": {"report", "runs"},
    "mlflow": {"runs"},
    "obstore": {"remote"},
    "ai_edge_litert": {"runs"},
}
# Of packages that hold light and heavy modules: the heavy ones.
HEAVY = {
    "artefacts/verify": {"tensorflow"},
    "runs/export": {"tensorflow", "keras", "ai_edge_litert"},
    "runs/tracking": {"mlflow"},
    "runs/trained": {"keras"},
    "problems/augmented": {"tensorflow"},
    # In functions, and for types.
    "problems/image_classification": {"tensorflow", "keras"},
    "problems/next_token": {"tensorflow", "keras"},
    "problems/problem": {"tensorflow", "keras"},
    "problems/image_evaluation": {"tensorflow", "keras"},
    "problems/text_evaluation": {"tensorflow", "keras"},
    "problems/writing": {"tensorflow", "keras"},
    "records/example": {"tensorflow"},
    "records/fixed": {"tensorflow"},
    "records/images": {"tensorflow"},
}
# Beside what is asked for before any backend is imported.
HEAVY |= {
    "hardware/jax": {"jax", "jaxlib", "keras"},
    "hardware/tensorflow": {"tensorflow"},
}
MIXED = {name.split("/")[0] for name in HEAVY}


def modules():
    return [*sorted((PROJECT / "pipeline").rglob("*.py")), *sorted((PROJECT / "tasks").rglob("*.py"))]


def room(path: Path) -> str:
    """The module or package of pipeline a file belongs to; "tasks" for all tasks."""
    parts = path.relative_to(PROJECT).with_suffix("").parts
    return "tasks" if parts[0] == "tasks" else parts[1]


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PROJECT)))
def test_imports_follow_the_datas_way(path):
    ours, third = set(), set()
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "pipeline" and rest:
            ours.add(rest.split(".")[0])
        elif top in THIRD_PARTY or top == "tasks":
            third.add(top)
    if room(path) == "tasks":
        return
    assert "tasks" not in third
    if room(path) != "__init__":
        assert ours <= DIRECTION[room(path)]
    assert all(room(path) in THIRD_PARTY[name] for name in third)


@pytest.mark.parametrize("path", [path for path in modules() if room(path) in MIXED], ids=str)
def test_of_a_room_with_light_modules_only_some_import_what_is_heavy(path):
    heavy = set().union(*HEAVY.values())
    found = {name.partition(".")[0] for name in imports(path)} & heavy
    assert found <= HEAVY.get(path.relative_to(PROJECT / "pipeline").with_suffix("").as_posix(), set())


def test_no_module_imports_itself_through_others():
    names = {
        path: ".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__") for path in modules()
    }
    known = set(names.values())
    # A package is above what it hands on: what its modules import of it by name is a module beside them.
    graph = {
        name: {found for found in imports(path) & known if not name.startswith(f"{found}.")} - {name}
        for path, name in names.items()
    }
    # Raises CycleError, which names them.
    assert known <= {*graphlib.TopologicalSorter(graph).static_order()}


def report_modules() -> list[Path]:
    return sorted((PROJECT / "pipeline" / "report").rglob("*.py"))


@pytest.mark.parametrize("path", report_modules(), ids=lambda path: str(path.relative_to(PROJECT)))
def test_inside_the_report_words_and_drawings_follow_from_facts(path):
    inside = path.relative_to(PROJECT / "pipeline" / "report").parts
    reached = {name.split(".")[2] for name in imports(path) if name.startswith("pipeline.report.")}
    assert "pipeline.report" not in imports(path), (
        "the package hands on names; what is inside imports them where they are"
    )
    if len(inside) > 1:
        assert reached <= REPORT[inside[0]]


# Inside tasks: a module imports from its own floor and those below it.
FLOORS = ("process", "tasks", "operations", "commands")
# Nightly is the task of operations: no other task knows it, or them.
ON_OPERATIONS_FLOOR = {"tasks.nightly"}
# What starts or assembles the rest; only the commands' own folder and a program may reach the top floor.
ASSEMBLY = {"tasks", "tasks.__main__", "tasks.unattended", "tasks.aftermath"}
# Of operations: plain data in and out, for programs that know nothing of Luigi.
WITHOUT_LUIGI = ("dated_reports", "incidents", "limits", "messages", "redaction", "state_file", "webhook")


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__")


def floor(name: str) -> int:
    """How high the module of tasks stands that an import names, which may be a name in that module."""
    if any(name == module or name.startswith(f"{module}.") for module in ON_OPERATIONS_FLOOR):
        return FLOORS.index("operations")
    return FLOORS.index(next((room for room in FLOORS if name.split(".")[1:2] == [room]), "tasks"))


@pytest.mark.parametrize("path", sorted((PROJECT / "tasks").rglob("*.py")), ids=dotted)
def test_inside_tasks_imports_lead_downwards(path):
    ours = {name for name in imports(path) if name.startswith("tasks.")}
    if dotted(path) in ASSEMBLY:
        assert not {name for name in ours if floor(name) == FLOORS.index("commands")}
        return
    assert {name for name in ours if floor(name) > floor(dotted(path))} == set()


@pytest.mark.parametrize("name", WITHOUT_LUIGI)
def test_what_works_on_plain_data_knows_nothing_of_luigi(name):
    ours = {
        other.split(".")[2] for other in imports(PROJECT / f"tasks/operations/{name}.py") if other.startswith("tasks.")
    }
    assert "luigi" not in {other.split(".")[0] for other in imports(PROJECT / f"tasks/operations/{name}.py")}
    assert ours <= set(WITHOUT_LUIGI)
    docstring = ast.get_docstring(ast.parse((PROJECT / f"tasks/operations/{name}.py").read_text()))
    assert "nothing of Luigi" in docstring


@pytest.mark.parametrize("name", sorted(LEAVES))
def test_leaves_import_the_standard_library_alone(name):
    tops = {imported.split(".")[0] for imported in imports(PROJECT / "pipeline" / f"{name}.py")}
    assert tops <= set(sys.stdlib_module_names) | {"pipeline"}


def test_importing_the_tasks_stays_light():
    heavy = {"tensorflow", "apache_beam", "keras", "tensorflow_datasets", "numpy", "matplotlib"}
    code = f"import sys, tasks; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PROJECT)
    assert done.stdout.strip() == "[]"


def test_what_a_killed_stage_leaves_is_looked_for_where_each_stage_works():
    from tasks import Export, Nightly, Records, Report, Source, Train
    from tasks.process import lock

    kinds = {stage.kind for stage in (Source, Records, Train, Export)}
    assert kinds | {f"{Report.kind}/history"} <= set(lock._PLACES), f"{Nightly} works in the last"


def test_every_setting_stands_in_the_config_file():
    import configparser

    import tasks

    parser = configparser.ConfigParser()
    parser.read(PROJECT / "config.ini")
    for task in (
        tasks.Storage,
        tasks.Experiment,
        tasks.Force,
        tasks.Notify,
        tasks.Metrics,
        tasks.Source,
        tasks.Records,
        tasks.Train,
        tasks.Report,
        tasks.Export,
    ):
        for name, parameter in task.get_params():
            written = parser[task.get_task_family()][name]
            assert parameter.parse(written) == parameter._default, f"[{task.get_task_family()}] {name}"


def pins(lock: str) -> dict[str, set[str]]:
    """Package → the versions a lock pins it to, more than one where Pythons differ."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([a-z0-9._-]+)==(\S+)", (PROJECT / lock).read_text(), re.MULTILINE):
        found.setdefault(name, set()).add(version)
    return found


def test_the_locks_are_hashed_and_name_no_index():
    locks = sorted(path.name for path in PROJECT.glob("requirements-*.lock"))
    assert locks == [
        f"requirements-{name}.lock" for name in ("cpu", "dask", "dev", "gpu", "jax-gpu", "jax-tpu", "jax", "uv")
    ]
    for path in PROJECT.glob("requirements-*.lock"):
        text = path.read_text()
        # pip and uv then ask for a hash of each.
        assert all("==" in line and line.endswith("\\") for line in re.findall(r"^[a-z].*", text, re.MULTILINE))
        assert text.count("--hash=sha256:") >= len(pins(path.name)) > 0
        assert "://" not in text
        assert "--index" not in text


@pytest.mark.parametrize("extra", ["cpu", "gpu", "jax", "jax-gpu", "jax-tpu"])
def test_the_locks_of_a_run_hold_no_development_packages_and_the_development_lock_changes_none_of_theirs(extra):
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    named = {Requirement(text).name for text in project["dependency-groups"]["dev"]}
    needed = {Requirement(text).name for text in project["project"]["dependencies"]}
    production, development = pins(f"requirements-{extra}.lock"), pins("requirements-dev.lock")
    assert needed <= production.keys()
    assert named <= development.keys()
    assert {"pytest", "selenium", "mlflow-skinny"} <= named
    # Which some locks are for.
    assert not (named - needed - {"jax"}) & production.keys()
    shared = production.keys() & development.keys()
    assert {name: development[name] - production[name] for name in shared} == {name: set() for name in shared}
