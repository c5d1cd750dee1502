"""Retention of artifacts."""
