"""Placement of a run on devices, and the hardware receipt of the devices that it used."""
