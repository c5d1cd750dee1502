"""Beside: the stages that the report does not ask for; each is made where it is asked for by itself."""

from tasks.export import Export
from tasks.repetition import Repetition
from tasks.stage import Stage

BESIDE = (Export, Repetition)


def beside() -> list[Stage]:
    """Each as the present settings have it, of whatever run a setting names besides."""
    return [Export(), Repetition(of="")]
