"""Artefacts: how what a stage leaves is named, published, compared with what is asked for, and given disk space.

Beside the data's way: every stage's results go through here, and no byte of them is decided here.
"""
