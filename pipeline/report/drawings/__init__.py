"""Drawings: series to inline SVG.

drawing.py   what every drawing shares
curves.py    accuracy and loss by epoch, times by batch, comparable runs over time
bars.py      calibration, examples of each label
"""
