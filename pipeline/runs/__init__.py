"""Runs: what one training leaves in writing (… → training → **run** → report).

record.py       run.json: the one schema of a run, for whoever writes it and whoever reads it
metrics.py      metrics.jsonl: one row an epoch
throughput.py   examples per second, compiling epochs left out
untrusted.py    a JSON file from anywhere → a checked object, or file and field that are wrong
initial.py      the weights a run starts from
trained.py      the run's network, ready to be asked
export.py       the run's network in other forms
repetition.py   the run trained again, and whether its weights came out the same
tracking.py     the run in MLflow
"""
