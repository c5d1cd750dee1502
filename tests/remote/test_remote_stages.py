"""A team's pipelines on roots of their own with one remote between them."""

import re
import shutil
import signal
import time

import pytest
from faulty_proxy import FaultyProxy
from image_files import write_folder
from luigi_process import FAST, Luigi
from moto_server import files_of

from pipeline.artefacts.manifest import read_manifest

pytestmark = pytest.mark.slow


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


@pytest.fixture
def office(machine, first_run) -> Luigi:
    """A machine that has made everything and pushed it."""
    luigi = machine("office")
    shutil.copytree(first_run.root, luigi.root)
    done = luigi.python("-m", "tasks.commands.push", *FAST)
    assert done.returncode == 0, done.stderr
    return luigi


def run_of(luigi: Luigi):
    (name,) = luigi.artefacts("runs")
    return luigi.root / "runs" / name


def test_a_machine_without_the_dataset_fetches_what_another_has_trained(machine):
    office, laptop = machine("office"), machine("laptop", has_data=False)
    assert office(*FAST).returncode == 0
    assert laptop.status(*FAST)["Source"]["state"] == "remote"
    done = laptop(*FAST)
    assert done.returncode == 0, done.stderr
    assert "Train: fetching" in done.stderr
    assert "Records: not needed here" in done.stderr
    assert "training baseline_cnn" not in done.stderr
    assert not laptop.artefacts("records")
    assert files_of(run_of(laptop)) == files_of(run_of(office))
    # It never reads as measured here.
    assert "Not made here" in done.stdout
    report = laptop.report()
    assert report["runs"][0]["fetched_from"].startswith("s3://")
    assert "not made here" in (laptop.root / "report" / "report.html").read_text()
    assert office.report()["runs"][0]["fetched_from"] == ""
    states = {stage: one["state"] for stage, one in laptop.status(*FAST).items()}
    assert states == {"Source": "fresh", "Records": "remote", "Train": "fresh", "Report": "fresh"}
    assert laptop(*FAST).stderr.strip().endswith("Nothing to do: every stage is fresh.")
    # Another network needs the records, which come from there too.
    more = laptop(*FAST, "--Train-seed", "1")
    assert more.returncode == 0, more.stderr
    assert "Records: fetching" in more.stderr
    assert "training baseline_cnn" in more.stderr


@pytest.mark.parametrize(("stage", "made"), [("Export", "exports"), ("Repetition", "repetitions")])
def test_what_a_fetched_run_was_trained_on_is_fetched_where_it_is_needed(machine, office, stage, made):
    laptop = machine("laptop", has_data=False)
    assert laptop(*FAST).returncode == 0
    assert not laptop.artefacts("records")
    done = laptop.python("-m", "tasks", stage, *FAST)
    assert done.returncode == 0, done.stderr
    assert "Records: fetching" in done.stderr
    assert laptop.artefacts("records")
    assert laptop.artefacts(made)


def test_luigi_may_fork_workers(machine):
    office, laptop = machine("office"), machine("laptop", has_data=False)
    for luigi in (office, laptop):
        done = luigi(*FAST, "--workers", "2")
        assert done.returncode == 0, done.stderr
    assert files_of(run_of(laptop)) == files_of(run_of(office))


def test_a_store_that_is_gone_ends_nothing_and_has_it_later(machine, store, url):
    proxy = FaultyProxy(store.endpoint)
    office, laptop = machine("office", endpoint=proxy.endpoint), machine("laptop", has_data=False)
    proxy.stop()
    done = office(*FAST)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the remote is left out") == 1
    assert laptop.status(*FAST)["Source"]["state"] == "missing"
    office.write_config(store.settings(url))
    again = office(*FAST)
    assert "Nothing to do: every stage is fresh." in again.stderr
    assert again.stderr.count("pushed ") == 3
    assert laptop(*FAST).returncode == 0
    assert files_of(run_of(laptop)) == files_of(run_of(office))
    assert "pushed" not in office(*FAST).stderr


def test_a_remote_that_refuses_ends_nothing_but_what_is_about_it(machine, store):
    proxy = FaultyProxy(store.endpoint, lambda *_: 403)
    office = machine("office", endpoint=proxy.endpoint)
    done = office(*FAST)
    assert done.returncode == 0, done.stderr
    assert "credentials" in done.stderr
    other = machine("other", endpoint=proxy.endpoint, has_data=False)
    for command, luigi in {"push": office, "pull": other, "doctor": office}.items():
        refused = luigi.python("-m", f"tasks.commands.{command}", *FAST)
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
        done = office(*FAST)
        assert done.returncode == 11, done.stderr
        assert "Traceback" not in done.stderr
        assert not office.artefacts("records")
    # What is written of the run that was made.
    refuse("/runs/.*/files/")
    done = office(*FAST)
    assert done.returncode == 11, done.stderr
    assert "training baseline_cnn" in done.stderr
    assert office.artefacts("runs")
    assert not office.artefacts("report")
    refuse("nothing")
    again = office(*FAST)
    assert again.returncode == 0, again.stderr
    assert "training baseline_cnn" not in again.stderr
    assert "pushed baseline_cnn" in again.stderr
    laptop = machine("laptop", has_data=False)
    assert laptop(*FAST).returncode == 0
    assert files_of(run_of(laptop)) == files_of(run_of(office))
    proxy.stop()


def test_of_two_at_once_one_trains_and_the_other_has_it(machine):
    machines = [machine(name, on_busy="wait") for name in ("one", "two")]
    started = [luigi.start(*FAST, "--Train-epochs", "3") for luigi in machines]
    logs = [process.communicate(timeout=300)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], logs
    assert sorted("training baseline_cnn" in log for log in logs) == [False, True], logs
    one, two = (files_of(run_of(luigi)) for luigi in machines)
    assert one == two


def test_who_does_not_wait_leaves_and_says_who_is_at_it(machine, office):
    first = machine("first")
    process = first.start(*FAST, "--Train-epochs", "5000")
    try:
        first.wait_for("runs/.*", process)
        time.sleep(1)
        done = office(*FAST, "--Train-epochs", "5000")
        assert done.returncode == 5
        assert re.search(r"process \d+ on \S+ is making it.*--Storage-on-busy wait", done.stderr)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)


def test_what_a_killed_machine_was_training_another_trains(machine):
    first, second = machine("first", lease_seconds=3), machine("second", lease_seconds=3, on_busy="wait")
    process = first.start(*FAST, "--Train-epochs", "10")
    first.wait_for("checkpoints/*/*", process)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=300)
    done = second(*FAST, "--Train-epochs", "10")
    assert done.returncode == 0, done.stderr
    assert "training baseline_cnn" in done.stderr


def test_what_was_asked_for_anew_stays_here(machine, office):
    laptop = machine("laptop", has_data=False)
    first = files_of(run_of(office))
    done = office(*FAST, "--Force-stage", "Train")
    assert done.returncode == 0, done.stderr
    assert "another was on the remote first, the one made here stays here" in done.stderr
    assert files_of(run_of(office)) != first
    assert laptop(*FAST).returncode == 0
    assert files_of(run_of(laptop)) == first


def test_what_was_asked_for_anew_while_the_store_was_gone_stays_too(office, store, url):
    proxy = FaultyProxy(store.endpoint)
    proxy.stop()
    office.write_config(store.settings(url).replace(store.endpoint, proxy.endpoint))
    assert office(*FAST, "--Force-stage", "Train").returncode == 0
    anew = files_of(run_of(office))
    office.write_config(store.settings(url))
    assert "the one made here stays here" in office(*FAST).stderr
    assert files_of(run_of(office)) == anew
    assert not list((office.root / ".unpushed").glob("*/*"))


def test_records_that_the_remote_lost_are_not_made_where_the_run_is_there(machine, office, remote):
    laptop = machine("laptop", has_data=False)
    for one in list(remote.objects.list("records")):
        remote.objects.delete(one.key)
    done = laptop(*FAST)
    assert done.returncode == 0, done.stderr
    assert files_of(run_of(laptop)) == files_of(run_of(office))


def test_who_waits_does_so_within_the_time_limit_of_the_stage(machine, office):
    first = machine("first")
    process = first.start(*FAST, "--Train-epochs", "5000")
    try:
        first.wait_for("runs/.*", process)
        time.sleep(1)
        done = office(*FAST, "--Train-epochs", "5000", "--Storage-on-busy", "wait", "--Train-time-limit-seconds", "3")
        assert done.returncode == 8, done.stderr
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)


def test_what_is_damaged_on_the_remote_is_made_here(machine, office, remote, tmp_path):
    laptop = machine("laptop")
    manifest = read_manifest(run_of(office))
    (entry,) = (one for one in manifest["files"] if one["name"] == "run.json")
    (tmp_path / "wrong").write_bytes(b"x" * entry["bytes"])
    remote.objects.put(f"runs/{manifest['fingerprint']}/files/{entry['sha256']}", tmp_path / "wrong")
    done = laptop(*FAST)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the remote's is left") == 1
    assert "training baseline_cnn" in done.stderr
    assert not laptop.report()["runs"][0]["fetched_from"]
    # And there it is mended.
    third = machine("third", has_data=False)
    assert third(*FAST).returncode == 0
    assert files_of(run_of(third)) == files_of(run_of(laptop))


def test_other_files_of_the_same_name_are_not_taken_for_ours(machine, tmp_path):
    flags = [*FAST, "--Source-dataset", "folder", "--Train-model", "small_convnet", "--Records-image-size", "16"]
    runs = []
    for number, name in enumerate(("one", "two")):
        folder = write_folder(tmp_path / name / "images", cats=60 + 10 * number, dogs=60)
        luigi = machine(f"machine-{name}")
        done = luigi(*flags, "--Source-path", str(folder), "--Train-global-batch-size", "16")
        assert done.returncode == 0, done.stderr
        assert "training small_convnet" in done.stderr
        runs.append(run_of(luigi).name)
    assert runs[0] != runs[1]
    # The newest look counts: who has no such folder has what the second found.
    third = machine("third")
    done = third(*flags, "--Source-path", str(tmp_path / "gone" / "images"), "--Train-global-batch-size", "16")
    assert done.returncode == 0, done.stderr
    assert run_of(third).name == runs[1]


def test_push_and_pull_move_all_of_it_and_never_means_never(machine):
    office, laptop = machine("office", push="never"), machine("laptop", has_data=False)
    assert office(*FAST).returncode == 0
    pulled = laptop.python("-m", "tasks.commands.pull", *FAST)
    assert pulled.returncode == 11
    assert "not on the remote" in pulled.stdout
    for expected in ("pushed", "there already, the same"):
        pushed = office.python("-m", "tasks.commands.push", *FAST)
        assert pushed.returncode == 0, pushed.stderr
        assert pushed.stdout.count(expected) >= 2, pushed.stdout
    pulled = laptop.python("-m", "tasks.commands.pull", *FAST)
    assert pulled.returncode == 0, pulled.stderr
    assert laptop.artefacts("records").keys() == office.artefacts("records").keys()
    cleaned = laptop.python("-m", "tasks.commands.clean_stale", "--remote", *FAST)
    assert cleaned.returncode == 0, cleaned.stderr
    assert "0.0 MB in 0 objects" in cleaned.stdout


def test_what_is_made_from_a_stand_in_is_not_shared(machine, remote):
    alone = machine("alone", has_data=False)
    done = alone(*FAST)
    assert done.returncode == 0, done.stderr
    assert alone.report()["runs"][0]["dataset"] == "synthetic"
    # What was asked for is tried again, as without a remote.
    assert "Source: stale" in alone(*FAST).stderr
    pushed = alone.python("-m", "tasks.commands.push", *FAST)
    assert pushed.returncode == 0, pushed.stderr
    assert all("not pushed" in line for line in pushed.stdout.splitlines()), pushed.stdout
    assert not [one.key for one in remote.objects.list() if not one.key.endswith("lease.json")]


def test_a_run_on_another_device_is_asked_for_again_though_nobody_needs_more_than_the_report(machine):
    office, flags = machine("office"), (*FAST, "--Train-device", "gpu", "--Train-on-mismatch")
    assert office(*flags, "fallback").returncode == 0
    assert "every stage is fresh" in office(*flags, "fallback").stderr
    refused = office(*flags, "fail")
    assert refused.returncode == 7, refused.stderr
    assert office(*flags, "skip").returncode == 0


def test_an_export_stays_where_neither_its_run_nor_the_remote_is_there_to_ask(machine, store, url):
    proxy = FaultyProxy(store.endpoint)
    office, laptop = machine("office"), machine("laptop", endpoint=proxy.endpoint)
    for luigi in (office, laptop):
        done = luigi.python("-m", "tasks", "Export", *FAST)
        assert done.returncode == 0, done.stderr
    assert not laptop.artefacts("runs")
    proxy.stop()
    kept = laptop.python("-m", "tasks.commands.clean_stale", "--dry-run", *FAST)
    assert kept.returncode == 0, kept.stderr
    assert "0 artefacts" in kept.stdout, kept.stdout


def test_workers_that_share_the_remote_alone_make_the_same_records_and_nothing_is_pushed_twice(machine, remote):
    apart, together = machine("apart", push="never"), machine("together", push="never")
    shared = ("--Records-workers-share", "remote")
    done = apart.python("-m", "tasks", "Records", *FAST, *shared)
    assert done.returncode == 0, done.stderr
    assert together.python("-m", "tasks", "Records", *FAST).returncode == 0
    (theirs,), (ours,) = (list(one.artefacts("records")) for one in (apart, together))
    assert theirs == ours
    assert files_of(apart.root / "records" / ours).keys() == files_of(together.root / "records" / ours).keys()
    shards = {name for name in files_of(apart.root / "records" / ours) if ".tfrecord-" in name}
    for name in shards:
        assert (apart.root / "records" / ours / name).read_bytes() == (
            together.root / "records" / ours / name
        ).read_bytes()
    before = {stored.key: stored.written_at for stored in remote.objects.list("records")}
    assert len(before) == len(shards)
    assert apart.python("-m", "tasks.commands.push", *FAST).returncode == 0
    after = {stored.key: stored.written_at for stored in remote.objects.list("records")}
    assert before.items() <= after.items()


def test_workers_cannot_share_the_remote_alone_where_there_is_none_or_the_examples_are_files(machine, tmp_path):
    shared = ("--Records-workers-share", "remote")
    office = machine("office")
    folder = write_folder(tmp_path / "photos", cats=12, dogs=12)
    files = ("--Source-dataset", "folder", "--Source-path", str(folder), "--Records-image-size", "80")
    done = office(*shared, *files)
    assert done.returncode == 2, done.stderr
    assert "[Records] workers_share: expected root, as the examples are files" in done.stderr
    office.write_config()
    done = office(*FAST, *shared)
    assert done.returncode == 2, done.stderr
    assert "[Records] workers_share: expected root, as there is no [Storage] remote" in done.stderr
