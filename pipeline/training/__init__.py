"""Training: a network fitted to the input stream and evaluated (… → stream → **training** → run → report).

train.py         the stage on one page
inputs.py        the streams it is trained and evaluated on
computation.py   how a network is computed: precision, XLA, steps in one execution
initial.py       the weights a run starts from, and the layers that keep theirs
loop.py          the epochs
checkpoint.py    what an interrupted run resumes from
saved.py         the network as files
recorded.py      what the run's record says of it
breakdown.py     where time and memory went
summaries.py     TensorBoard
words.py         what is said about figures
"""
