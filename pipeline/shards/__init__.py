"""Shards: records → sharded TFRecord files (source → records → **shards** → …).

plan.py            which examples of the source go where, known before anything is read
order.py           key → rank, shard and place; pure arithmetic
job.py             the Beam job
engine.py          where it runs; reach.py: whether it could
blocks.py          one block of a source, read and serialized
placed.py          records of one length, put where they belong at once
merge.py           records of any length, sorted block by block and joined shard by shard
shuffled.py        whole shards through the runner's shuffle, for workers that share no file system
shared.py          small files that workers and the submitting process leave for each other
presence.py        which workers there are, and that they have the same code
worker_logs.py     what workers log, told where the job was submitted
notes.py           digests and label counts, gathered from all blocks
skipped.py         the list of the files that are no examples
findings.py        what of the data should be known before its figures are believed
words.py           what is said of it
worker_pool.py     starts workers on a machine of a cluster
workers.py         what happens when a worker process of Beam dies
notebook.py        has Beam build its job in a notebook as elsewhere
tfds_metadata.py   makes the finished folder a dataset of TensorFlow Datasets

Nothing is handed on here: how splits are divided is asked where Beam is not imported.
"""
