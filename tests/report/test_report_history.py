"""History: the log of every run reported, and which of them are comparable."""

import json

import pytest
from report_history_entries import DIGESTS, change_of, entry
from report_runs import RUN


def setup_module() -> None:
    global append_history, build_report, comparable_groups, judge_change, read_history
    from pipeline.report import append_history, build_report, read_history
    from pipeline.report.data.history import comparable_groups, judge_change


def test_the_log_keeps_every_run_once_in_the_order_they_were_reported_and_is_only_added_to(tmp_path):
    log = tmp_path / "history.jsonl"
    assert read_history(log) == []
    append_history(log, [entry(1, 0.7)], past=read_history(log))
    before = log.read_bytes()
    append_history(log, [entry(1, 0.7), entry(2, 0.8)], past=read_history(log))
    assert [one.test_accuracy for one in read_history(log)] == [0.7, 0.8]
    assert log.read_bytes().startswith(before)
    assert len(log.read_text().splitlines()) == 2
    untouched = log.stat().st_mtime_ns
    append_history(log, [entry(2, 0.8)], past=read_history(log))
    assert log.stat().st_mtime_ns == untouched


@pytest.mark.parametrize("torn", ['{"fingerprint": "ab', "[]", '{"fingerprint": 3}', "\x00\xff"])
def test_a_torn_line_costs_no_other_line(tmp_path, caplog, torn):
    log = tmp_path / "history.jsonl"
    append_history(log, [entry(1, 0.7)], past=read_history(log))
    with log.open("a", encoding="latin-1") as file:
        file.write(torn)
    append_history(log, [entry(2, 0.8)], past=read_history(log))
    assert [one.test_accuracy for one in read_history(log)] == [0.7, 0.8]
    assert "history.jsonl: line 2" in caplog.text


def test_a_run_whose_folder_is_gone_stays_in_the_history(make_run, tmp_path):
    report = build_report([make_run(content_digests=DIGESTS)], current=[], past=[entry(1, 0.7)])
    (group,) = report.history
    assert len(report.runs) == 1
    assert sorted(point.test_accuracy for point in group) == [0.7, RUN["test_accuracy"]]


def test_only_comparable_runs_share_a_group():
    others = [entry(n, 0.7, **{name: value}) for n, (name, value) in enumerate(
        [("global_batch_size", 256), ("epochs", 9), ("precision", "float32"), ("granted_cores", 4),
         ("training_recipe", "x"),
         ("content_digests", {"train": "3" * 64, "test": "4" * 64})], start=2)]  # fmt: skip
    groups = comparable_groups([entry(1, 0.7), *others], current=[f"{1:064x}"])
    assert [group[0].fingerprint for group in groups] == [f"{n:064x}" for n in (1, 7, 6, 5, 4, 3, 2)]
    assert change_of([entry(1, 0.7), *others], 1).earlier == 0


def test_runs_of_two_hosts_of_one_kind_are_comparable():
    change = change_of([entry(n, 0.7 + n / 1000, hostname=f"pod-{n}") for n in range(1, 6)], 5)
    assert change.earlier == 4
    assert judge_change(change.test_accuracy) == "noise"


OLD_LINE = RUN | {
    "fingerprint": f"{1:064x}", "made_from": "old", "content_digests": DIGESTS, "test_accuracy": 0.7,
}  # fmt: skip


def test_a_line_of_an_earlier_version_is_read_and_what_it_leaves_out_is_unknown_or_as_it_was_then(tmp_path):
    log = tmp_path / "history.jsonl"
    log.write_text(json.dumps(OLD_LINE) + "\n")
    (old,) = read_history(log)
    assert old.test_accuracy == 0.7
    assert (old.granted_cores, old.replicas, old.experiment) == (None, 1, "cifar10")


def test_a_line_of_an_earlier_version_is_replaced_by_what_the_run_itself_says(tmp_path):
    log = tmp_path / "history.jsonl"
    log.write_text(json.dumps(OLD_LINE) + "\n")
    now = entry(1, 0.7, finished_at=OLD_LINE["finished_at"])
    for _ in range(2):
        append_history(log, [now], past=read_history(log))
    assert read_history(log) == [now]
    assert len(log.read_text().splitlines()) == 2


@pytest.mark.parametrize("name", ["epochs", "model", "device_verified", "finished_at"])
def test_a_line_that_lacks_what_every_version_wrote_is_left_out(tmp_path, caplog, name):
    log = tmp_path / "history.jsonl"
    log.write_text(json.dumps({key: value for key, value in OLD_LINE.items() if key != name}) + "\n")
    assert read_history(log) == []
    assert f'line 1 lacks "{name}"' in caplog.text


def test_a_group_is_called_by_what_its_runs_share():
    from pipeline.report.sections.charts import group_name

    one, two = entry(1, 0.7), entry(2, 0.7, processes=2, num_replicas=2)
    (group,) = comparable_groups([two.model_copy(update={"processes": 1}), two])
    assert {group_name(run) for run in group} == {group_name(two)}
    assert group_name(two).endswith("(AMD EPYC 9B14, 2 replicas)")
    assert group_name(one).endswith("(AMD EPYC 9B14)")
