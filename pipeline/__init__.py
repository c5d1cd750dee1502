"""The work itself, stage by stage; knows nothing of Luigi.

The data's way, one module (or package) for each step:

    sources → records → shards → stream → training → metrics → report

    sources/        where examples come from: TensorFlow Datasets, or the generated stand-in
    records.py      one tf.train.Example ⇄ bytes; the feature spec writer and reader share
    shards.py       the Beam job: blocks of examples → sharded TFRecord files
    stream.py       shards → batched tf.data.Dataset
    hardware.py     requested device → tf.distribute strategy and what is known of it
    models.py       Keras networks
    training.py     compile, fit, evaluate, throughput
    evaluation.py   what the trained network gets right and wrong
    export.py       a trained network in the forms that serve it elsewhere
    tracking.py     a published run in MLflow, where one is named
    summaries.py    what TensorBoard shows of a run
    checkpoint.py   a run's state after each epoch
    metrics.py      per-epoch metrics as JSON Lines
    report/         runs → scoreboard → JSON, Markdown, HTML

Beside the way, used by every stage and importing the standard library alone:

    config.py       every setting, validated
    fingerprint.py  what an artefact is made from, as one hash
    manifest.py     what an artefact holds; publishing it whole or not at all
    staleness.py    what differs between two identities, in words
    verify.py       an artefact read to the last byte
    errors.py       what users are told when something is wrong
"""
