"""Beside: the stages that the report does not ask for; each is made where it is asked for by itself."""

from tasks.export import Export
from tasks.repetition import Repetition

BESIDE = (Export, Repetition)
