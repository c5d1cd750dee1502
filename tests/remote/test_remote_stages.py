"""A team's pipelines on roots of their own with one remote between them."""

import re
import shutil
import signal

import luigi_process
import pytest
from faulty_proxy import FaultyProxy
from image_files import write_folder
from luigi_process import TINY, Luigi
from moto_server import files_of

from pipeline.artifacts.manifest import read_manifest

pytestmark = pytest.mark.slow

FAST = [*luigi_process.FAST, *TINY]
TRAINS = f"Training {TINY[1]}"


def run(luigi: Luigi, *args: str):
    """Run the pipeline on this machine, in the process of the tests."""
    return luigi.here("tasks", "Report", *FAST, *args)


@pytest.fixture
def machine(tmp_path, tiny_tfds, store, url):
    """A function that gives a machine of the team: a root of its own, with the dataset or without."""
    nothing = tmp_path / "nothing"
    nothing.mkdir()

    def make(name: str, *, has_data: bool = True, endpoint: str | None = None, **more: object) -> Luigi:
        luigi = Luigi(tmp_path / name, tiny_tfds if has_data else nothing)
        settings = store.settings(url, **more).replace(store.endpoint, endpoint or store.endpoint)
        luigi.write_config(settings)
        return luigi

    return make


@pytest.fixture(scope="module")
def trained(first_run, tmp_path_factory) -> Luigi:
    """A root on which the pipeline has run; for copying."""
    luigi = first_run.copy(tmp_path_factory.mktemp("trained"))
    shutil.rmtree(luigi.root / "runs")
    done = run(luigi)
    assert done.returncode == 0, done.stderr
    return luigi


@pytest.fixture
def unpushed(machine, trained) -> Luigi:
    """A machine that has made everything and pushes nothing."""
    luigi = machine("office", push="never")
    shutil.copytree(trained.root, luigi.root)
    return luigi


@pytest.fixture
def office(unpushed, store, url) -> Luigi:
    """A machine that has made everything and pushed it."""
    unpushed.write_config(store.settings(url))
    done = unpushed.command("push", *FAST)
    assert done.returncode == 0, done.stderr
    return unpushed


def run_of(luigi: Luigi):
    (name,) = luigi.artifacts("runs")
    return luigi.root / "runs" / name


def test_a_machine_without_the_dataset_fetches_what_another_has_trained(machine, office):
    laptop = machine("laptop", has_data=False)
    assert laptop.status(*FAST)["Source"]["remote"].startswith("built on ")
    done = run(laptop)
    assert done.returncode == 0, done.stderr
    assert "Train: downloading" in done.stderr
    assert "Records: skipped" in done.stderr
    assert TRAINS not in done.stderr
    assert not laptop.artifacts("records")
    assert files_of(run_of(laptop)) == files_of(run_of(office))
    # It never reads as measured here.
    assert "Trained on another machine" in done.stdout
    report = laptop.report()
    assert report["runs"][0]["fetched_from"].startswith("s3://")
    assert "trained on another machine" in (laptop.root / "report" / "report.html").read_text()
    assert office.report()["runs"][0]["fetched_from"] == ""
    found = laptop.status(*FAST)
    states = {stage: one["state"] for stage, one in found.items()}
    assert states == {"Source": "fresh", "Records": "new", "Train": "fresh", "Report": "fresh"}
    assert [stage for stage, one in found.items() if one["remote"]] == ["Records"]
    assert run(laptop).stderr.strip().endswith("Nothing to do. Every stage is fresh.")
    # Another network needs the records, which come from there too.
    more = run(laptop, "--Train-seed", "1")
    assert more.returncode == 0, more.stderr
    assert "Records: downloading" in more.stderr
    assert TRAINS in more.stderr


def test_the_records_of_a_fetched_run_are_fetched_to_retrain_it(machine, office):
    laptop = machine("laptop", has_data=False)
    assert run(laptop).returncode == 0
    assert not laptop.artifacts("records")
    done = laptop.command("verify-determinism", *FAST)
    assert done.returncode == 0, done.stderr
    assert "Records: downloading" in done.stderr
    assert [*laptop.root.glob("determinism/*.json")]


def test_an_export_fetches_records_and_stays_where_neither_run_nor_remote_is_there_to_ask(machine, office, store):
    proxy = FaultyProxy(store.endpoint)
    exporting, laptop = machine("exporting", has_data=False), machine("laptop", endpoint=proxy.endpoint)
    assert run(exporting).returncode == 0
    done = exporting.here("tasks", "Export", *FAST)
    assert done.returncode == 0, done.stderr
    assert "Records: downloading" in done.stderr
    done = laptop.here("tasks", "Export", *FAST)
    assert done.returncode == 0, done.stderr
    assert laptop.artifacts("exports")
    assert not laptop.artifacts("runs")
    proxy.stop()
    kept = laptop.command("clean-stale", *FAST)
    assert kept.returncode == 0, kept.stderr
    assert "0 artifacts" in kept.stdout, kept.stdout


def test_luigi_may_fork_workers(machine):
    """In processes of their own."""
    office, laptop = machine("office"), machine("laptop", has_data=False)
    for luigi in (office, laptop):
        done = luigi(*FAST, "--workers", "2")
        assert done.returncode == 0, done.stderr
    assert files_of(run_of(laptop)) == files_of(run_of(office))


def test_an_unreachable_store_ends_nothing_and_receives_the_artifacts_later(machine, store, url):
    proxy = FaultyProxy(store.endpoint)
    office, laptop = machine("office", endpoint=proxy.endpoint), machine("laptop", has_data=False)
    proxy.stop()
    done = run(office)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Continuing without the remote") == 1
    assert laptop.status(*FAST)["Source"]["state"] == "new"
    office.write_config(store.settings(url))
    again = run(office)
    assert "Nothing to do. Every stage is fresh." in again.stderr
    assert again.stderr.count("Pushed ") == 3
    assert run(laptop).returncode == 0
    assert files_of(run_of(laptop)) == files_of(run_of(office))
    assert "pushed" not in run(office).stderr


def test_a_remote_that_refuses_ends_nothing_but_what_is_about_it(machine, store):
    proxy = FaultyProxy(store.endpoint, lambda *_: 403)
    office = machine("office", endpoint=proxy.endpoint)
    done = run(office)
    assert done.returncode == 0, done.stderr
    assert "credentials" in done.stderr
    other = machine("other", endpoint=proxy.endpoint, has_data=False)
    for command, luigi in {"push": office, "pull": other, "doctor": office}.items():
        refused = luigi.command(command, *FAST)
        assert refused.returncode == 11, refused.stderr
        assert "Traceback" not in refused.stderr
        assert "not-a-secret" not in refused.stderr + refused.stdout
    proxy.stop()


def test_a_remote_that_has_to_answer_ends_the_run_before_the_work_or_after_it(machine, store):
    proxy = FaultyProxy(store.endpoint)
    office = machine("office", endpoint=proxy.endpoint, on_remote_error="fail")

    def refuse(pattern: str) -> None:
        proxy.decide = lambda _, method, path: 403 if re.search(pattern, path) else "pass"

    # All that is asked, then whether there is a run.
    for pattern in ("/", "/runs/"):
        refuse(pattern)
        done = run(office)
        assert done.returncode == 11, done.stderr
        assert "Traceback" not in done.stderr
        assert not office.artifacts("records")
    # What is written of the run that was made.
    refuse("/runs/.*/files/")
    done = run(office)
    assert done.returncode == 11, done.stderr
    assert TRAINS in done.stderr
    assert office.artifacts("runs")
    assert not office.artifacts("report")
    refuse("nothing")
    again = run(office)
    assert again.returncode == 0, again.stderr
    assert TRAINS not in again.stderr
    assert "Pushed runs/tests.tiny_model.build" in again.stderr
    laptop = machine("laptop", has_data=False)
    assert run(laptop).returncode == 0
    assert files_of(run_of(laptop)) == files_of(run_of(office))
    proxy.stop()


def test_of_two_at_once_both_train_and_the_first_manifest_counts(machine):
    machines = [machine(name) for name in ("one", "two")]
    started = [luigi.start(*FAST, "--Train-epochs", "3") for luigi in machines]
    logs = [process.communicate(timeout=300)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], logs
    assert any(TRAINS in log for log in logs), logs
    one, two = (files_of(run_of(luigi)) for luigi in machines)
    assert one == two


def test_another_machine_trains_the_run_of_a_killed_machine(machine):
    first, second = machine("first"), machine("second")
    process = first.start(*FAST, "--Train-epochs", "40")
    first.wait_for("checkpoints/*/*", process)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=300)
    done = run(second, "--Train-epochs", "40")
    assert done.returncode == 0, done.stderr
    assert TRAINS in done.stderr


def test_a_requested_rebuild_stays_local(machine, office):
    laptop = machine("laptop", has_data=False)
    first = files_of(run_of(office))
    done = run(office, "--Force-stage", "Train")
    assert done.returncode == 0, done.stderr
    assert "The remote already has another copy of it." in done.stderr
    assert "Keeping runs/" in done.stderr
    assert files_of(run_of(office)) != first
    assert run(laptop).returncode == 0
    assert files_of(run_of(laptop)) == first


def test_a_rebuild_requested_during_an_outage_stays_local(office, store, url):
    proxy = FaultyProxy(store.endpoint)
    proxy.stop()
    office.write_config(store.settings(url).replace(store.endpoint, proxy.endpoint))
    assert run(office, "--Force-stage", "Train").returncode == 0
    anew = files_of(run_of(office))
    office.write_config(store.settings(url))
    assert "Keeping runs/" in run(office).stderr
    assert files_of(run_of(office)) == anew
    assert not list((office.root / ".unpushed").glob("*/*"))


def test_records_that_the_remote_lost_are_not_made_where_the_run_is_there(machine, office, remote):
    laptop = machine("laptop", has_data=False)
    for one in list(remote.objects.list("records")):
        remote.objects.delete(one.key)
    done = run(laptop)
    assert done.returncode == 0, done.stderr
    assert files_of(run_of(laptop)) == files_of(run_of(office))


def test_an_artifact_damaged_on_the_remote_is_built_locally(machine, office, remote, tmp_path):
    laptop = machine("laptop")
    manifest = read_manifest(run_of(office))
    (entry,) = (one for one in manifest["files"] if one["name"] == "run.json")
    (tmp_path / "wrong").write_bytes(b"x" * entry["bytes"])
    remote.objects.put(f"runs/{manifest['fingerprint']}/files/{entry['sha256']}", tmp_path / "wrong")
    done = run(laptop)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Ignoring the copy on the remote") == 1
    assert TRAINS in done.stderr
    assert not laptop.report()["runs"][0]["fetched_from"]
    # And there it is mended.
    third = machine("third", has_data=False)
    assert run(third).returncode == 0
    assert files_of(run_of(third)) == files_of(run_of(laptop))


def test_other_files_of_the_same_name_are_not_taken_for_ours(machine, tmp_path):
    flags = ["--Source-dataset", "folder", "--Records-image-size", "16", "--Train-global-batch-size", "16"]
    runs = []
    for number, name in enumerate(("one", "two")):
        folder = write_folder(tmp_path / name / "images", cats=60 + 10 * number, dogs=60)
        luigi = machine(f"machine-{name}")
        done = run(luigi, *flags, "--Source-path", str(folder))
        assert done.returncode == 0, done.stderr
        assert TRAINS in done.stderr
        runs.append(run_of(luigi).name)
    assert runs[0] != runs[1]
    # The newest look counts: who has no such folder has what the second found.
    third = machine("third")
    done = run(third, *flags, "--Source-path", str(tmp_path / "gone" / "images"))
    assert done.returncode == 0, done.stderr
    assert run_of(third).name == runs[1]


def test_push_and_pull_move_all_of_it_and_never_means_never(machine, unpushed):
    office, laptop = unpushed, machine("laptop", has_data=False)
    # What is made is not pushed by itself.
    shutil.rmtree(office.root / "runs")
    done = run(office)
    assert (done.returncode, TRAINS in done.stderr, "Pushed" in done.stderr) == (0, True, False), done.stderr
    pulled = laptop.command("pull", *FAST)
    assert pulled.returncode == 11
    assert "not on the remote" in pulled.stdout
    for expected in ("pushed", "already on the remote"):
        pushed = office.command("push", *FAST)
        assert pushed.returncode == 0, pushed.stderr
        assert pushed.stdout.count(expected) >= 2, pushed.stdout
    pulled = laptop.command("pull", *FAST)
    assert pulled.returncode == 0, pulled.stderr
    assert laptop.artifacts("records").keys() == office.artifacts("records").keys()
    cleaned = laptop.command("clean-stale", "--yes", "--remote", *FAST)
    assert cleaned.returncode == 0, cleaned.stderr
    assert "0.0 MB in 0 unreferenced objects" in cleaned.stdout


def test_a_placeholder_is_reported_and_never_final_and_its_artifacts_are_not_shared(machine, remote, tiny_tfds):
    alone = machine("alone", has_data=False)
    # It has as many images as the real one.
    large = ("--Train-global-batch-size", "1000")
    done = run(alone, *large)
    assert done.returncode == 0, done.stderr
    assert "Using the placeholder dataset" in done.stderr
    (first,) = alone.report()["runs"]
    assert (first["requested_dataset"], first["dataset"], first["dataset_verified"]) == ("cifar10", "synthetic", False)
    for name in ("report.html", "report.md"):
        assert "placeholder" in (alone.root / "report" / name).read_text().lower()
    again = run(alone, *large)
    assert "Source: building" in again.stderr
    assert "Using the placeholder dataset" in again.stderr, "the real source must be tried again"
    assert len(alone.artifacts("runs")) == 1
    pushed = alone.command("push", *FAST, *large)
    assert pushed.returncode == 0, pushed.stderr
    assert all("not pushed" in line for line in pushed.stdout.splitlines()), pushed.stdout
    assert not list(remote.objects.list())
    alone.data_dir = tiny_tfds
    assert run(alone).returncode == 0
    assert {one["dataset"] for one in alone.report()["runs"]} == {"synthetic", "cifar10"}


def test_a_run_on_another_device_is_retried_for_the_report(machine):
    office, flags = machine("office"), ("--Train-device", "gpu", "--Train-on-mismatch")
    assert run(office, *flags, "fallback").returncode == 0
    assert "Every stage is fresh" in run(office, *flags, "fallback").stderr
    refused = run(office, *flags, "fail")
    assert refused.returncode == 7, refused.stderr


def test_workers_that_share_the_remote_alone_make_the_same_records_and_nothing_is_pushed_twice(machine, remote):
    apart, together = machine("apart", push="never"), machine("together", push="never")
    shared = ("--Records-workers-share", "remote")
    done = apart.here("tasks", "Records", *FAST, *shared)
    assert done.returncode == 0, done.stderr
    assert together.here("tasks", "Records", *FAST).returncode == 0
    (theirs,), (ours,) = (list(one.artifacts("records")) for one in (apart, together))
    assert theirs == ours
    assert files_of(apart.root / "records" / ours).keys() == files_of(together.root / "records" / ours).keys()
    shards = {name for name in files_of(apart.root / "records" / ours) if ".tfrecord-" in name}
    for name in shards:
        assert (apart.root / "records" / ours / name).read_bytes() == (
            together.root / "records" / ours / name
        ).read_bytes()
    before = {stored.key: stored.written_at for stored in remote.objects.list("records")}
    assert len(before) == len(shards)
    assert apart.command("push", *FAST).returncode == 0
    after = {stored.key: stored.written_at for stored in remote.objects.list("records")}
    assert before.items() <= after.items()


def test_workers_cannot_share_the_remote_alone_where_there_is_none_or_the_examples_are_files(machine, tmp_path):
    shared = ("--Records-workers-share", "remote")
    office = machine("office")
    folder = write_folder(tmp_path / "photos", cats=12, dogs=12)
    files = ("--Source-dataset", "folder", "--Source-path", str(folder), "--Records-image-size", "80")
    done = office(*shared, *files)
    assert done.returncode == 2, done.stderr
    assert "[Records] workers_share: expected root, because only this machine has the files" in done.stderr
    office.write_config()
    done = run(office, *shared)
    assert done.returncode == 2, done.stderr
    assert "[Records] workers_share: expected root, because [Storage] remote is empty" in done.stderr
