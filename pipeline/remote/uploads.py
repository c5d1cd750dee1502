"""Uploads: parts of large files that a killed push left on S3, which no listing of objects shows (the remote's aid).

Other stores clear such parts away by themselves after a week. boto3 has what obstore lacks: to list and abort them.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from pipeline.errors import RemoteError
from pipeline.remote.artefacts import GRACE

_DEFAULT_REGION = "us-east-1"


@dataclass(frozen=True)
class Upload:
    """An upload in parts that was begun and not ended: ``key`` is the whole one of its object, in the bucket."""

    key: str
    upload_id: str
    begun_at: datetime


class Uploads:
    """Those of a bucket on S3, below a prefix."""

    def __init__(self, url: str, *, endpoint: str = "") -> None:
        """Nothing is asked of the store yet.

        Args:
            url: ``s3://`` with bucket and prefix.
            endpoint: of a server that is compatible with S3; "": Amazon's own.

        Raises:
            ModuleNotFoundError: the package boto3 is not installed.
        """
        import boto3

        parts = urlsplit(url)
        self._bucket, self._prefix = parts.netloc, parts.path.strip("/")
        region = boto3.session.Session().region_name or _DEFAULT_REGION
        self._client = boto3.client("s3", endpoint_url=endpoint or None, region_name=region)

    def old(self, *, grace: timedelta = GRACE) -> Iterator[Upload]:
        """Those that were begun before the grace time.

        Raises:
            RemoteError: here and below, the store does not answer, or refuses.
        """
        pages = self._client.get_paginator("list_multipart_uploads")
        prefix = f"{self._prefix}/" if self._prefix else ""
        with self._saying():
            for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
                for found in page.get("Uploads", ()):
                    upload = Upload(found["Key"], found["UploadId"], found["Initiated"])
                    if datetime.now(UTC) - upload.begun_at > grace:
                        yield upload

    def abort(self, upload: Upload) -> None:
        """Remove what there is of it."""
        with self._saying():
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=upload.key, UploadId=upload.upload_id)

    @contextlib.contextmanager
    def _saying(self) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError) as error:
            where = f"s3://{self._bucket}/{self._prefix}"
            raise RemoteError(f"{where}: uploads cannot be listed or aborted: {error}.") from error
