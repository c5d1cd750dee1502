"""Wording: the facts as text, written once so that HTML, Markdown and terminal cannot disagree.

Not yet escaped: see formats.py.

    formats.py           single figures and names
    devices.py runs.py   a run's device, data and name, in a few words
    verdict.py warnings.py changes.py gate.py comparison.py   sentences
    definitions.py       what the figures mean
    rows.py batches.py   the scoreboard and the tables by batch, as rows
    experiments.py       the overview of the experiments, and a scoreboard for each
    receipt.py figures.py times.py evaluation.py lineage.py   what one run has to show beyond its row
    alternatives.py      what each drawing shows, for those who do not see it
    cards.py             the model card and the dataset card
    terminal.py          how text fits the terminal
    scoreboard_table.py differences.py experiments_table.py   what the terminal shows
"""
