"""Removes objects that no manifest names, and parts of large files, as interrupted uploads leave them.

An object is removed if it is older than the grace time, unchanged since it was listed, and not named by the artifact's
manifest, which is read again before the removal. An upload writes such old objects again before it publishes.
"""

import contextlib
import itertools
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import urlsplit

from pipeline.artifacts import layout
from pipeline.artifacts.manifest import MANIFEST_NAME
from pipeline.errors import DamagedArtifactError, RemoteError
from pipeline.remote.artifacts import GRACE, Remote
from pipeline.remote.objects import EXCHANGE, Stored

_KINDS = "|".join((layout.SOURCE, layout.RECORDS, layout.RUNS, layout.EXPORTS))
_KEY = re.compile(rf"({_KINDS})/[0-9a-f]{{64}}/.+")

_logger = logging.getLogger(__name__)


def find_garbage(remote: Remote, *, grace: timedelta = GRACE) -> Iterator[Stored]:
    """List the objects that may be removed.

    Raises:
        RemoteError: the store does not answer, or refuses.
    """
    now = datetime.now(UTC)
    # The newest object of a job counts: a job may take longer than the grace time.
    for _, group in itertools.groupby(remote.objects.list(EXCHANGE), _folder_of):
        left = list(group)
        if now - max(one.written_at for one in left) > grace:
            yield from left
    # Stores list keys in order, so that the objects of an artifact follow one another.
    listed = (one for one in remote.objects.list() if _KEY.fullmatch(one.key))
    for folder, group in itertools.groupby(listed, _folder_of):
        old = [one for one in group if now - one.written_at > grace and not one.key.endswith(f"/{MANIFEST_NAME}")]
        if old and (named := _named(remote, folder)) is not None:
            yield from (one for one in old if one.key not in named)


def remove_garbage(remote: Remote, *, grace: timedelta = GRACE) -> Iterator[Stored]:
    """Remove what ``find_garbage`` lists, and yield what was removed.

    Raises:
        RemoteError: the store does not answer, or refuses.
    """
    for folder, group in itertools.groupby(find_garbage(remote, grace=grace), _folder_of):
        found = list(group)
        # A manifest may have come since the listing.
        named = set() if folder.startswith(f"{EXCHANGE}/") else _named(remote, folder)
        if named is not None:
            yield from (one for one in found if one.key not in named and _removed(remote, one))


def _removed(remote: Remote, listed: Stored) -> bool:
    """Remove an object that is unchanged since it was listed."""
    if remote.objects.find(listed.key) != listed:
        return False
    remote.objects.delete(listed.key)
    return True


def _named(remote: Remote, folder: str) -> set[str] | None:
    """Keys that the manifest of an artifact names, None if it is damaged."""
    try:
        stored_artifact = remote.find(*folder.split("/"))
    except DamagedArtifactError as error:
        _logger.warning("Not removed. %s", error)
        return None
    return {
        f"{folder}/files/{entry['sha256']}" for entry in (stored_artifact.manifest["files"] if stored_artifact else ())
    }


def _folder_of(stored: Stored) -> str:
    return "/".join(stored.key.split("/")[:2])


class Upload(NamedTuple):
    """An upload in parts that was begun and not ended. ``key`` is that of its object in the bucket."""

    key: str
    upload_id: str
    begun_at: datetime


class Uploads:
    """Uploads in parts to a bucket on S3, below a prefix. Other stores remove those that were cut by themselves.

    boto3 lists and aborts them, which obstore cannot. ModuleNotFoundError if it is not installed.
    """

    def __init__(self, url: str, *, endpoint: str = "") -> None:
        import boto3

        parts = urlsplit(url)
        self._bucket, self._prefix = parts.netloc, parts.path.strip("/")
        region = boto3.session.Session().region_name or "us-east-1"
        self._client = boto3.client("s3", endpoint_url=endpoint or None, region_name=region)

    def old(self, *, grace: timedelta = GRACE) -> Iterator[Upload]:
        """Those that were begun before the grace time. RemoteError: the store does not answer, or refuses."""
        pages = self._client.get_paginator("list_multipart_uploads")
        prefix = f"{self._prefix}/" if self._prefix else ""
        with self._explaining():
            for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
                for found in page.get("Uploads", ()):
                    if datetime.now(UTC) - found["Initiated"] > grace:
                        yield Upload(found["Key"], found["UploadId"], found["Initiated"])

    def abort(self, upload: Upload) -> None:
        """Remove the parts of an upload. RemoteError: the store does not answer, or refuses."""
        with self._explaining():
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=upload.key, UploadId=upload.upload_id)

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError) as error:
            where = f"s3://{self._bucket}/{self._prefix}"
            raise RemoteError(f"{where}: uploads cannot be listed or aborted ({error}).") from error
