"""tensorcraft promote: the champion, which predict uses by default and which nothing removes."""

import csv
import json
import shutil

import pytest
from luigi_process import FAST, Luigi
from report_runs import render, write_run
from scheduled import TODAY, nightly, noon  # noqa: F401

from pipeline.artifacts.manifest import read_manifest, write_manifest
from tasks.report import publish_dated_report


@pytest.fixture
def luigi(tmp_path):
    """A root with two runs that have weights, of which the second is better, and one without."""
    luigi = Luigi(tmp_path / "own", tmp_path / "no data")
    for number, name in enumerate(("cnn-aa11", "cnn-bb22", "cnn-cc33")):
        about = {"test_accuracy": 0.7 + number / 10, "epochs": number + 1, "records_fingerprint": name[-1] * 64}
        folder = write_run(luigi.root / "runs" / name, fingerprint=name[4:] * 16, **about)
        if name != "cnn-cc33":
            (folder / "weights.safetensors").write_text("weights")
        write_manifest(folder, stage="Train", identity={"settings": {}, "upstream": {}}, details={})
    return luigi


def used(luigi, *run):
    """The last letter of the name of the run that predict uses. It stops at the records, which do not exist."""
    done = luigi.command("predict", "a.jpg", *run)
    assert done.returncode == 2
    return done.stderr.partition("expected the run's records ")[2][:1] or done.stderr


def test_a_promoted_run_is_the_default_and_another_one_replaces_it(luigi):
    shutil.rmtree(luigi.root / "runs" / "cnn-cc33")
    assert used(luigi) == "2", "the best run"
    first = luigi.command("promote", "cnn-aa")
    assert first.stdout == "Champion before: none\nChampion now:    cnn-aa11\n", first.stderr
    assert used(luigi) == used(luigi, "--model", "champion") == "1"
    assert used(luigi, "--model", "best") == "2"
    assert (luigi.root / "champion").readlink().as_posix() == "runs/cnn-aa11", "it stays valid if the root moves"
    assert luigi.command("promote", "best").stdout == "Champion before: cnn-aa11\nChampion now:    cnn-bb22\n"
    assert sorted(path.name for path in luigi.root.iterdir()) == ["champion", "runs"]
    assert used(luigi) == "2"


def test_a_run_whose_records_are_of_version_0_1_is_refused_with_the_remedy(luigi):
    records, run, identity = luigi.root / "records" / "old", luigi.root / "runs" / "cnn-dd44", {"settings": {}}
    records.mkdir(parents=True)
    write_manifest(records, stage="Records", identity=identity, details={"source": {}})
    write_run(run, fingerprint="dd44" * 16, records_fingerprint=read_manifest(records)["fingerprint"])
    (run / "weights.safetensors").write_text("weights")
    write_manifest(run, stage="Train", identity=identity, details={})
    done = luigi.command("predict", "a.jpg", "--model", "cnn-dd")
    assert done.returncode == 2
    assert "of version 0.2 or later" in done.stderr
    assert 'Rebuild them with the settings of that run and "tensorcraft run".' in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("target", "code", "message"),
    [
        ("cnn", 2, "RUN: expected a run in "),
        ("cnn-cc33", 2, "RUN: expected a finished run with weights.safetensors, got "),
        ("champion", 2, 'found none. Choose a run with "tensorcraft promote RUN".'),
        ("damaged", 4, "weights.safetensors"),
    ],
)
def test_only_a_whole_run_with_weights_is_promoted(luigi, target, code, message):
    if target == "damaged":
        (luigi.root / "runs" / "cnn-aa11" / "weights.safetensors").write_text("others")
    done = luigi.command("promote", "cnn-aa11" if target == "damaged" else target)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
    assert not (luigi.root / "champion").is_symlink()


def test_a_damaged_run_predicts_nothing(luigi):
    (luigi.root / "runs" / "cnn-aa11" / "weights.safetensors").write_text("others")
    done = luigi.command("predict", "a.jpg", "--model", "cnn-aa11")
    assert (done.returncode, "cnn-aa11/weights.safetensors: expected 7 bytes, got 6." in done.stderr) == (4, True)


def test_a_link_that_leads_to_no_run_is_an_error_that_a_promotion_repairs(luigi):
    link = luigi.root / "champion"
    for target in ("runs/gone", "/etc", "champion"):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        said = used(luigi)
        assert f"{link}: expected a link to a run in {luigi.root}/runs, got one to {target}. " in said
        assert 'Choose a run with "tensorcraft promote RUN", or remove the link.' in said
    assert luigi.command("promote", "cnn-aa11").returncode == 0
    assert used(luigi) == "1"


def test_a_file_of_that_name_is_not_overwritten(luigi):
    (luigi.root / "champion").write_text("mine")
    done = luigi.command("promote", "cnn-aa11")
    assert done.returncode == 2
    assert "champion: expected a link to a run, got a file or folder. Move it elsewhere." in done.stderr
    assert (luigi.root / "champion").read_text() == "mine"


def report_of(luigi, *current, **gate):
    """Publish a report of all runs, of which these were requested, newest first."""
    from pipeline.report import Gate

    runs, folder = sorted(luigi.root.glob("runs/*")), luigi.root / "report"
    render(runs, folder, [name * 16 for name in current], gate=Gate(**gate))
    (folder / "manifest.json").unlink(missing_ok=True)
    write_manifest(folder, stage="Report", identity={}, details={})


def test_judged_is_the_run_that_passed_and_not_a_newer_one_that_was_refused(luigi):
    for name, hour in (("aa11", 12), ("bb22", 11)):
        record = luigi.root / "runs" / f"cnn-{name}" / "run.json"
        about = json.loads(record.read_text()) | {"finished_at": f"2026-03-02T{hour}:00:00+00:00"}
        record.write_text(json.dumps(about))
        (record.parent / "manifest.json").unlink()
        write_manifest(record.parent, stage="Train", identity={"settings": {}, "upstream": {}}, details={})
    report_of(luigi, "aa11", min_test_accuracy=0.75)
    refused = luigi.command("promote", "judged")
    assert (refused.returncode, "found none. " in refused.stderr) == (2, True), refused.stderr
    report_of(luigi, "bb22", min_test_accuracy=0.75)
    assert used(luigi, "--model", "latest") == "1"
    assert luigi.command("promote", "judged").stdout.endswith("Champion now:    cnn-bb22\n")


@pytest.mark.parametrize("case", ["no report", "no thresholds", "only a page", "another training", "changed"])
def test_judged_is_refused_unless_the_newest_report_judged_this_training(luigi, case):
    if case != "no report":
        report_of(luigi, "bb22", min_test_accuracy=0.0 if case == "no thresholds" else 0.75)
    if case == "only a page":
        (luigi.root / "report" / "report.json").unlink()
    if case == "another training":
        record = luigi.root / "runs" / "cnn-bb22" / "run.json"
        record.write_text(json.dumps(json.loads(record.read_text()) | {"finished_at": "2026-03-02T10:00:00+00:00"}))
    if case == "changed":
        with (luigi.root / "report" / "report.json").open("a") as file:
            file.write(" ")
    done = luigi.command("promote", "judged")
    assert done.returncode == (4 if case == "changed" else 2), done.stderr
    assert ("report.json" if case == "changed" else "and is still there, found none. ") in done.stderr
    assert not (luigi.root / "champion").is_symlink()


@pytest.mark.usefixtures("noon")
def test_a_night_with_nothing_to_do_promotes_no_run_that_was_made_by_hand_since(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    publish_dated_report(luigi.root / "report" / "history", TODAY, luigi.root / "report")
    night = nightly(luigi)
    assert (night.returncode, "nothing to do, the report exists" in night.stderr) == (0, True), night.stderr
    done = luigi.command("promote", "judged")
    assert (done.returncode, "found none. " in done.stderr) == (2, True), done.stderr


def better(run):
    """A copy of a run that is right on every test example."""
    folder = shutil.copytree(run, run.with_name(f"better-{'b' * 12}"))
    predictions, record = folder / "test_predictions.csv", folder / "run.json"
    with predictions.open(newline="") as file:
        header, *rows = csv.reader(file)
    with predictions.open("w", newline="") as file:
        csv.writer(file).writerows([header, *([key, label, label, *more] for key, label, _, *more in rows)])
    about = {"fingerprint": "b" * 64, "test_accuracy": 1.0, "seed": 9, "finished_at": "2026-01-01T00:00:00+00:00"}
    record.write_text(json.dumps(json.loads(record.read_text()) | about))
    identity = read_manifest(run)["identity"] | {"planted": True}
    (folder / "manifest.json").unlink()
    write_manifest(folder, stage="Train", identity=identity, details={})
    return folder


@pytest.mark.slow
def test_the_report_compares_with_the_champion_and_a_worse_run_ends_with_9(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    (run,) = luigi.root.glob("runs/*")
    required = ["--Report-champion", "champion", "--Report-not-worse", "true"]
    first = luigi.command("Report", *FAST, *required)
    assert (first.returncode, "Not judged yet" in first.stdout) == (0, True), first.stderr
    folder = better(run)
    assert luigi.command("promote", folder.name).returncode == 0
    assert luigi.status(*FAST, *required)["Report"]["state"] == "stale"
    worse = luigi.command("Report", *FAST, *required)
    assert worse.returncode == 9, worse.stderr
    assert "The newest run is worse (p = " in worse.stderr
    assert "found none. " in luigi.command("promote", "judged").stderr
    assert luigi.command("promote", run.name).returncode == 0
    same = luigi.command("Report", *FAST, *required)
    assert (same.returncode, "because it is the run in use" in same.stdout) == (0, True), same.stderr
    assert luigi.status(*FAST, *required)["Report"]["state"] == "fresh"
    assert luigi.command("promote", "judged").stdout.endswith(f"Champion now:    {run.name}\n")
    (luigi.root / "champion").unlink()
    (luigi.root / "champion").symlink_to("runs/gone")
    dangling = luigi.command("status", *FAST, *required)
    assert (dangling.returncode, "expected a link to a run in" in dangling.stderr) == (2, True)
    assert set(luigi.status(*FAST)) == {"Source", "Records", "Train", "Report"}
