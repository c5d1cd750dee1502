"""Redaction: no secret goes out: not the webhook's address, nor what looks like a password in a line of the log.

Beside the data's way; nothing of Luigi.
"""

import os
import re
from collections.abc import Iterable, Mapping

from pipeline.redaction import HIDDEN, without_userinfo

_SECRET_NAME = re.compile(r"passw|secret|token|api_?key|credential|webhook", re.IGNORECASE)
# A shorter value would be found in too many words that are none.
_SHORTEST_SECRET = 6


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets, and without names and passwords in addresses."""
    for secret in sorted((s for s in secrets if len(s) >= _SHORTEST_SECRET), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return without_userinfo(text)


def secrets_of(environment: Mapping[str, str]) -> set[str]:
    """The values in the environment that by their names are secrets."""
    return {value for name, value in environment.items() if _SECRET_NAME.search(name)}


def environment_secrets() -> set[str]:
    """The secrets in this process's environment."""
    return secrets_of(os.environ)


def host_secrets(url: str) -> set[str]:
    """What of a webhook's address is secret: all of it, and the path that follows its host."""
    return {url, url.partition("://")[2].partition("/")[2]} if url else set()
