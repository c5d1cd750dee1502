"""Identities, manifests and atomic publishing of artifacts."""
