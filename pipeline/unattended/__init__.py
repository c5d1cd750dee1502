"""Unattended: what a schedule leaves behind, what became of its runs, who is told, and what monitoring reads.

Beside the data's way: nothing here can change an artefact of a stage.
"""
