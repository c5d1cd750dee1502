"""Uploads in parts that a killed push leaves, on a real server of S3's kind."""

from datetime import timedelta

import pytest
from luigi_process import FAST

from pipeline.errors import RemoteError


def setup_module() -> None:
    global boto3, interrupted_uploads
    import boto3

    from pipeline.remote.artifacts import interrupted_uploads


@pytest.fixture
def client(store):
    return boto3.client("s3", endpoint_url=store.endpoint, region_name="us-east-1")


@pytest.fixture
def cut(url, client) -> str:
    """The key of an upload below the remote's prefix that was begun; one of another prefix was begun too."""
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    for key in (f"{prefix}/runs/x" if prefix else "runs/x", "another/object"):
        client.create_multipart_upload(Bucket=bucket, Key=key)
    return f"{prefix}/runs/x" if prefix else "runs/x"


def keys(store, url, days: int = -1, **how) -> list[str]:
    return [key for key, _ in interrupted_uploads(url, endpoint=store.endpoint, grace=timedelta(days=days), **how)]


def test_cut_uploads_below_the_prefix_are_found_once_they_are_old_and_aborted(store, url, cut):
    address = url if url.count("/") > 2 else f"{url}/runs"
    assert keys(store, address, days=100_000) == []
    assert keys(store, address) == keys(store, address, is_removing=True) == [cut]
    assert keys(store, address) == []


def test_clean_stale_lists_them_and_removes_them_with_yes(store, url, cut, first_run, client):
    remote = ("--Storage-remote", url, "--Storage-remote-endpoint", store.endpoint)
    for yes, left in ((), True), (("--yes",), False):
        done = first_run.command("clean-stale", "--remote", *yes, *remote, *FAST)
        assert done.returncode == 0, done.stderr
        assert cut in done.stdout
        assert ("none removed" in done.stdout) == left
        found = client.list_multipart_uploads(Bucket=url.removeprefix("s3://").partition("/")[0]).get("Uploads", [])
        assert (cut in [upload["Key"] for upload in found]) == left


def test_a_store_that_refuses_is_named(store):
    with pytest.raises(RemoteError, match="s3://no-such-bucket/"):
        keys(store, "s3://no-such-bucket")
