"""A section of the report."""

from pipeline.report.blocks import Section, Text


def section(report):
    yield Section("toy", "A toy section", [Text(f"{len(report.runs)} runs of the toy")])
