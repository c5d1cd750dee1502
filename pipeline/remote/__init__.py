"""The remote: an object store through which a team shares artefacts by their fingerprints (beside the data's way).

objects.py     the few operations on objects that are needed, on S3, Google Cloud Storage or Azure
artefacts.py   an artefact ⇄ objects: files by their digests first, its manifest last by a create-only write
garbage.py     what no manifest names

A key is ``<kind>/<fingerprint>/…`` under the remote's prefix; what the workers of a cluster note of a job, as long as
it runs, lies under ``exchange/<job>/…``. Of artefacts nothing but garbage.py lists: what is not under the key that it
is asked for does not exist.
"""
