"""An object store through which a team shares artifacts by their fingerprints."""
