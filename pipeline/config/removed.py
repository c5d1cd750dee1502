"""Settings that the last release had and this one has not. An entry stays for one release."""

from pipeline.errors import message

# Flag → the remedy.
_REMOVED = {
    "--Storage-lease-seconds": "Leases were removed, so remove the setting.",
}


@message
def remedy(flag: str) -> str:
    """The remedy for a removed setting, which starts with a blank, or an empty string."""
    return f" {_REMOVED[flag]}" if flag in _REMOVED else ""
