"""Facts: what is known of runs. No text is made here for anyone to read.

reading.py      a run's folder → its record and metrics, checked field by field
predictions.py  a run's evaluation, checked;  surprises.py: that of a text
pictures.py     its sheets of tiles → single images
scenarios.py    runs that differ in their seed alone → one row, mean and standard deviation
comparison.py   those rows → which may be compared, and the speed-up of those that may
batch_sizes.py  those rows → epoch and step time by batch and device
utilisation.py  a run's step → the share of its device's speed
lineage.py      a run's folder → the artefacts it was made from, and its exports
repetitions.py  a run's folder → whether training it again gave the same weights
history.py      the log of every run ever reported → groups of comparable runs over time
changes.py      the newest runs of a group compared with those before, and whether a change is more than noise
gate.py         the changes and what the settings demand → what is not met
published.py    figures published elsewhere, from the files beside the experiments
experiments.py  of each experiment its best row, its newest run and what that changed
scoreboard.py   all of the above, side by side
series.py       of which what is drawn
diff.py         two runs → what differs between them
"""
