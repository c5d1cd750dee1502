"""Artifacts: identities, manifests, atomic publishing and free disk space."""
