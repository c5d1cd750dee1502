"""Redaction: no user's name and password of an address reaches a log or an error."""

import re

# Up to the last @ before the path: a password may hold one.
_USERINFO = re.compile(r"(?<=://)[^/\s?#]*(?=@)")
HIDDEN = "***"


def without_userinfo(text: str) -> str:
    """The text with ``***`` for name and password in each address."""
    return _USERINFO.sub(HIDDEN, text)
