"""What ``make report-diff`` says of two runs."""

import re

import pytest
from luigi_process import PROJECT
from report_runs import RUN, write_evaluation

from pipeline.artifacts.manifest import write_manifest
from pipeline.errors import DamagedArtifactError, SettingsError


def setup_module() -> None:
    global Difference, compare_runs, format_differences
    from pipeline.report import compare_runs, format_differences
    from pipeline.report.sections.compare import Difference


def published(folder, code="1", keras="3.15.1", **settings):
    identity = {
        "settings": {"epochs": 2, "seed": 0, **settings},
        "upstream": {},
        "code": {"pipeline.models": {"baseline_cnn": code}},
        "packages": {"keras": keras},
    }
    write_manifest(folder, stage="Train", identity=identity, details={})
    return folder


def test_a_run_does_not_differ_from_itself(make_run):
    folder = published(make_run())
    assert compare_runs(folder, folder) == []
    assert format_differences([], ("a", "b")) == "The two runs do not differ.\n"


def test_settings_data_code_versions_hardware_and_metrics_that_differ_are_named_in_this_order(make_run):
    host = {"host": {"cores": 2, "instruction_sets": ["avx2"]}, "versions": {"python": "3.11.7"}}
    one = published(make_run("one", receipt=host))
    host = {"host": {"cores": 8, "instruction_sets": ["avx2", "amx"]}, "versions": {"python": "3.12.1"}}
    other = make_run("other", receipt=host, dataset_verified=False, hostname="lab", test_accuracy=0.75, test_loss=None)
    published(write_evaluation(other), code="2", keras="3.16.0", seed=1)
    found = [(one.section, one.name, one.first, one.second) for one in compare_runs(one, other)]
    assert found[:-1] == [
        ("settings", "seed", 0, 1),
        ("data", "dataset_verified", True, False),
        ("code", "pipeline.models.baseline_cnn", "1", "2"),
        ("versions", "keras", "3.15.1", "3.16.0"),
        ("versions", "python", "3.11.7", "3.12.1"),
        ("host", "hostname", "bench", "lab"),
        ("host", "host.cores", 2, 8),
        ("host", "host.instruction_sets", ["avx2"], ["avx2", "amx"]),
        ("metrics", "test_accuracy", 0.738, 0.75),
        ("metrics", "test_loss", 0.764, None),
    ]
    assert found[-1][:3] == ("metrics", "expected_calibration_error", None)


def test_numbers_have_about_four_digits():
    text = format_differences(
        [
            Difference("settings", "epochs", 1, 5),
            Difference("metrics", "examples_per_second", 5772.2, 6772.2),
            Difference("metrics", "test_accuracy", 0.7, 0.65),
        ],
        ("one", "other"),
    )
    rows = {line.split()[1]: line.split()[2:] for line in text.splitlines() if " " in line}
    assert rows["epochs"] == ["1", "5"]
    assert rows["examples_per_second"] == ["5,772", "6,772"]
    assert rows["test_accuracy"] == ["0.7000", "0.6500"]


def test_the_differences_fit_the_terminal(make_run):
    one, other = make_run("one"), make_run("other", epochs=5, fingerprint="b" * 64, test_accuracy=0.75, hostname="lab")
    for width in (32, 40, 80, 100, 160):
        text = format_differences(compare_runs(one, other), ("cifar10-" + "one" * 20, "other"), width=width)
        assert max(map(len, text.splitlines())) <= width
        words = text.split()
        assert all(word in words for word in ("METRICS", "test_accuracy", "0.7380", "0.7500", "lab"))


def test_control_characters_of_a_run_never_reach_the_terminal(make_run):
    one, other = make_run("one"), make_run("other", hostname="\x1b[31m [bold]red")
    text = format_differences(compare_runs(one, other), ("one", "other"))
    assert "\x1b" not in text
    assert "[bold]red" in text


def test_runs_without_a_manifest_are_compared_by_their_records(make_run):
    one, other = make_run("one"), make_run("other", epochs=5, fingerprint="b" * 64)
    assert [(one.section, one.name) for one in compare_runs(one, other)] == [("settings", "epochs")]


def test_a_run_with_a_manifest_is_compared_with_one_without_in_both_directions(make_run):
    one, other = make_run("one"), published(make_run("other", test_accuracy=0.75))
    for folders in ((one, other), (other, one)):
        sections = list(dict.fromkeys(found.section for found in compare_runs(*folders)))
        assert sections == ["settings", "code", "versions", "metrics"]


def test_a_folder_without_a_run_is_refused_by_name(make_run, tmp_path):
    with pytest.raises(DamagedArtifactError, match=r"run\.json"):
        compare_runs(make_run(), tmp_path)


@pytest.mark.slow
def test_the_command_takes_folders_and_beginnings_of_names(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    folder = next(luigi.root.glob("runs/*"))
    digits = folder.name.rpartition("-")[2]
    for name in (str(folder), folder.name[:16], digits[:6]):
        done = luigi.python("-m", "tasks", "diff", name, digits)
        assert (done.returncode, done.stdout) == (0, "The two runs do not differ.\n"), done.stderr
    done = luigi.python("-m", "tasks", "diff", "nothing", digits)
    assert done.returncode == 2
    assert folder.name in done.stderr
    assert RUN["model"] in folder.name


@pytest.mark.slow
def test_a_folder_outside_the_runs_is_refused_and_nobody_is_advised_to_remove_it(first_run, make_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    outside = make_run("outside")
    (luigi.root / "runs" / "link").symlink_to(outside)
    run = next(path for path in luigi.root.glob("runs/*") if not path.is_symlink())
    for name in ("../../../etc", "/etc", str(outside), str(luigi.root / "runs" / "link"), "link", str(luigi.root)):
        done = luigi.python("-m", "tasks", "diff", name, run.name)
        assert done.returncode == 2
        assert f"A: expected a run in {luigi.root / 'runs'}, " in done.stderr
        assert f"got {name!r}." in done.stderr
        assert f"Runs:\n  {run.name}  " in done.stderr
        assert "emove" not in done.stderr


def test_without_both_runs_there_is_the_usage():
    from tasks.__main__ import dispatch

    command = re.search(r"-m tasks diff (.*) \$\(ARGS\)", (PROJECT / "Makefile").read_text())[1]
    assert command == '"$(A)" "$(B)"', "make hands on what it was given, nothing too"
    for given in (["", ""], ["a", ""]):
        with pytest.raises(SettingsError) as refused:
            dispatch(["diff", *given])
        assert "usage: tensorcraft diff " in str(refused.value)
        assert f"argument {'A' if given[0] == '' else 'B'}: expected a value" in str(refused.value)
