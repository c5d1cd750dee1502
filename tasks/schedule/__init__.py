"""Scheduled runs: dated reports, notifications, metrics and retention."""
