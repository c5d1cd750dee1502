"""The stages as plain functions, without Luigi.

Data flow: ``sources → records → shards → stream → training → runs → report``. README.md lists the modules.
"""
