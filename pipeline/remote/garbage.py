"""Removes objects that no manifest names, and parts of large files, as interrupted uploads leave them.

An object is removed if it is older than the grace time, unchanged since it was listed, and not named by the artifact's
manifest, which is read again before the removal. An upload writes such old objects again before it publishes.
"""

import itertools
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from pipeline.artifacts import layout
from pipeline.artifacts.manifest import MANIFEST_NAME
from pipeline.errors import DamagedArtifactError, RemoteError
from pipeline.remote.artifacts import GRACE, Remote
from pipeline.remote.objects import EXCHANGE, Stored

_KEY = re.compile(rf"({'|'.join(layout.KINDS)})/[0-9a-f]{{64}}/.+")

_logger = logging.getLogger(__name__)


def unreferenced_objects(remote: Remote, *, is_removing: bool = False, grace: timedelta = GRACE) -> Iterator[Stored]:
    """Yield the old objects that no manifest names. If ``is_removing``, remove those to which that still applies."""
    for listed in _unreferenced(remote, grace):
        if not is_removing or _removed(remote, listed):
            yield listed


def _unreferenced(remote: Remote, grace: timedelta) -> Iterator[Stored]:
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


def _removed(remote: Remote, listed: Stored) -> bool:
    """Remove a listed object, unless it changed since, or a manifest names it now."""
    folder = _folder_of(listed)
    named = set() if folder.startswith(f"{EXCHANGE}/") else _named(remote, folder)
    if named is None or listed.key in named or remote.objects.find(listed.key) != listed:
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
    entries = stored_artifact.manifest["files"] if stored_artifact else ()
    return {f"{folder}/files/{entry['sha256']}" for entry in entries}


def _folder_of(stored: Stored) -> str:
    return "/".join(stored.key.split("/")[:2])


def interrupted_uploads(
    url: str, *, endpoint: str = "", is_removing: bool = False, grace: timedelta = GRACE
) -> Iterator[tuple[str, datetime]]:
    """Yield key and start of each old, unfinished upload in parts to S3. If ``is_removing``, abort it.

    Other stores remove such parts by themselves. boto3 lists and aborts uploads, which obstore cannot.
    ModuleNotFoundError: boto3 is not installed.
    """
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    parts = urlsplit(url)
    bucket, prefix = parts.netloc, parts.path.strip("/")
    region = boto3.session.Session().region_name or "us-east-1"
    try:
        client = boto3.client("s3", endpoint_url=endpoint or None, region_name=region)
        pages = client.get_paginator("list_multipart_uploads")
        for page in pages.paginate(Bucket=bucket, Prefix=prefix and f"{prefix}/"):
            for upload in page.get("Uploads", ()):
                if datetime.now(UTC) - upload["Initiated"] > grace:
                    if is_removing:
                        client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
                    yield upload["Key"], upload["Initiated"]
    except (BotoCoreError, ClientError) as error:
        raise RemoteError(f"s3://{bucket}/{prefix}: uploads cannot be listed or aborted ({error}).") from error
