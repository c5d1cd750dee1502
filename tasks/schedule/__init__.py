"""Scheduled runs, with dated reports, notifications, metrics and retention."""
