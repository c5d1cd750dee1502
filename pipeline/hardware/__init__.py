"""Placement of a run on the devices of a backend, and the receipt of the devices that were used."""
