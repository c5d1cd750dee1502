"""Data of a report: runs are read, grouped, compared and judged."""
