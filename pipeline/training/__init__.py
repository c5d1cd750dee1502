"""Training: a network fitted to the input stream and evaluated (… → stream → **training** → run → report).

train.py         the stage on one page
computation.py   how a network is computed: precision, XLA, steps in one execution
initial.py       the weights a run starts from, and the layers that keep theirs
loop.py          the epochs
checkpoint.py    what an interrupted run resumes from
breakdown.py     where time and memory went
summaries.py     TensorBoard
words.py         what is said about figures
"""
