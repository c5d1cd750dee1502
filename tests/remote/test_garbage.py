"""Garbage: what no manifest names goes after the grace time, and nothing else does."""

from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from moto_server import files_of

from pipeline.remote import artifacts
from pipeline.remote.artifacts import unreferenced_objects

KIND = "runs"
NOW = timedelta(seconds=-10)
LISTING = (
    '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bucket</Name>'
    "<KeyCount>1000</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>{truncated}</IsTruncated>{token}{contents}"
    "</ListBucketResult>"
)
OBJECT = (
    "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;x&quot;</ETag>"
    "<Size>0</Size></Contents>"
)


def remove_garbage(remote, **grace) -> list:
    return [*unreferenced_objects(remote, is_removing=True, **grace)]


def half_pushed(remote, expected, *, names=("0" * 64, "1" * 64)) -> list[str]:
    keys = [f"{KIND}/{expected}/files/{name}" for name in names]
    for key in keys:
        remote.objects.create(key, b"cut")
    return keys


def test_leftovers_of_an_interrupted_push_are_removed_after_the_grace_time(remote, expected):
    keys = half_pushed(remote, expected)
    assert remove_garbage(remote) == []
    assert [one.key for one in unreferenced_objects(remote, grace=NOW)] == keys
    assert [one.key for one in remove_garbage(remote, grace=NOW)] == keys
    assert list(remote.objects.list()) == []


def test_files_of_a_manifest_stay(remote, make_artifact, expected, tmp_path):
    made = make_artifact()
    remote.push(KIND, made)
    keys = half_pushed(remote, expected)
    assert [one.key for one in remove_garbage(remote, grace=NOW)] == keys
    remote.fetch(KIND, remote.find(KIND, expected), tmp_path / "fetched", root=tmp_path)
    assert files_of(tmp_path / "fetched") == files_of(made)


def test_files_of_a_version_that_was_replaced_go(remote, make_artifact, expected, tmp_path):
    remote.push(KIND, make_artifact("old", {"old.bin": b"old"}))
    new = make_artifact("new", {"new.bin": b"new"})
    remote.push(KIND, new, replace=True)
    (removed,) = remove_garbage(remote, grace=NOW)
    assert removed.num_bytes == 3
    remote.fetch(KIND, remote.find(KIND, expected), tmp_path / "fetched", root=tmp_path)
    assert files_of(tmp_path / "fetched") == files_of(new)


def test_foreign_objects_stay(remote, expected):
    others = ["notes.txt", "runs/readme", f"other/{expected}/files/{'0' * 64}", f"runs/{expected[:-1]}/files/x"]
    for key in others:
        remote.objects.create(key, b"")
    assert remove_garbage(remote, grace=NOW) == []
    assert {one.key for one in remote.objects.list()} == set(others)


def test_an_object_rewritten_after_the_listing_stays(remote, overwrite, expected, monkeypatch):
    (key,) = half_pushed(remote, expected, names=("0" * 64,))
    named = artifacts._named

    def pushed_meanwhile(*about):
        overwrite(key, b"pushed")
        return named(*about)

    monkeypatch.setattr(artifacts, "_named", pushed_meanwhile)
    assert remove_garbage(remote, grace=NOW) == []
    assert remote.objects.find(key)


def test_an_object_named_after_the_listing_stays(remote, expected, monkeypatch):
    keys = half_pushed(remote, expected)
    answers = [set(), {keys[0]}, {keys[0]}]
    monkeypatch.setattr(artifacts, "_named", lambda *_: answers.pop(0))
    assert [one.key for one in remove_garbage(remote, grace=NOW)] == keys[1:]


def test_trying_the_store_out_leaves_nothing_behind(remote):
    remote.objects.try_out()
    assert list(remote.objects.list()) == []
    # But where it was killed.
    remote.objects.create("exchange/killed/trial", b"")
    assert [one.key for one in remove_garbage(remote, grace=NOW)] == ["exchange/killed/trial"]


def test_nothing_is_removed_if_a_manifest_is_unreadable(remote, expected, caplog):
    half_pushed(remote, expected)
    remote.objects.create(f"{KIND}/{expected}/manifest.json", b"{}")
    assert remove_garbage(remote, grace=NOW) == []
    assert "Not removed." in caplog.text


def test_a_push_in_the_middle_of_which_it_is_cleared_away_writes_it_again(remote, make_artifact, expected, tmp_path):
    made = make_artifact()
    remote.push(KIND, made)
    remote.objects.delete(f"{KIND}/{expected}/manifest.json")
    # All files lie there; half of them are cleared away before the next push.
    for one in list(remote.objects.list())[::2]:
        remote.objects.delete(one.key)
    remote.push(KIND, made)
    remote.fetch(KIND, remote.find(KIND, expected), tmp_path / "fetched", root=tmp_path)
    assert files_of(tmp_path / "fetched") == files_of(made)


@pytest.mark.slow
def test_among_a_million_objects_the_one_is_found(behind_proxy, expected):
    # moto sorts all of them for each page, and would take an hour: the pages are drawn here.
    found = f"{KIND}/{expected}/files/{'0' * 64}"

    def page(number, method, path):
        asked = parse_qs(urlsplit(path).query)
        if method != "GET" or "list-type" not in asked:
            return "pass"
        at = int(asked.get("continuation-token", ["0"])[0])
        keys = [f"team/notes/{1_000 * at + one:07d}" for one in range(1_000)]
        if "exchange" in path:
            keys = []
        is_last = at == 999 or not keys
        keys += [f"team/{found}"] if at == 500 else []
        return LISTING.format(
            truncated=str(not is_last).lower(),
            token="" if is_last else f"<NextContinuationToken>{at + 1}</NextContinuationToken>",
            contents="".join(OBJECT.format(key=key) for key in keys),
        ).encode()

    remote, proxy = behind_proxy(page)
    assert [one.key for one in unreferenced_objects(remote)] == [found]
    assert len(proxy.requests) > 1_000
