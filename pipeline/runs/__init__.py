"""Runs: what one training leaves in writing (… → training → **run** → report).

record.py      run.json: the one schema of a run, for whoever writes it and whoever reads it
untrusted.py   a JSON file from anywhere → a checked object, or file and field that are wrong
"""
