"""Data of a report. Reads, groups, compares and judges runs."""
