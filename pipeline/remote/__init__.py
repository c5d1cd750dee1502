"""An object store through which a team shares artifacts by their fingerprints.

Keys of artifacts are ``<kind>/<fingerprint>/…`` under the remote's prefix. Keys of running Beam jobs are
``exchange/<job>/…``. Only garbage.py lists keys of artifacts.
"""
