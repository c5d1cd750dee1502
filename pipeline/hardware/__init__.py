"""Placement of a run on the devices of a backend, and the receipt of the devices that were used.

The requested and the effective device are separate. A resolver that answers, or a strategy that exists, is no proof of
a device. ``python -m pipeline.hardware`` checks in its own process whether a device is available.
"""
