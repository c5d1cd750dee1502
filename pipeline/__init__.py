"""The work itself, stage by stage; knows nothing of Luigi.

The data's way, one module (or package) for each step:

    sources → records → shards → stream → training → metrics → report

    sources/        where examples come from: TensorFlow Datasets, or the generated stand-in
    records.py      one tf.train.Example ⇄ bytes; the feature spec writer and reader share
    shards.py       the Beam job: blocks of examples → sharded TFRecord files
    stream.py       shards → batched tf.data.Dataset
    problems/       what is learned: what of the records is input and label, what is evaluated, what is shown
    hardware/       requested device → tf.distribute strategy and what is known of it
    networks/       Keras networks
    training/       recipe, computation, fit, evaluation: what makes a run
    metrics.py      a run's record and per-epoch metrics
    report/         runs → scoreboard → JSON, Markdown, HTML

What else becomes of a run:

    export.py       a trained network in the forms that serve it elsewhere
    predict/        what it says of files that it was not trained on
    tracking.py     a published run in MLflow, where one is named

Beside the way:

    config.py       every setting, validated
    errors.py       what users are told when something is wrong
    progress.py     how far a stage is, told to whoever listens
    machine.py      cores and memory that this process was granted
    artefacts/      fingerprint, manifest, publishing, disk space, staleness
    workers.py      Beam's worker processes: one that dies ends the job
    verify.py       an artefact read to the last byte
    unattended/     dated reports, retention, who is told, figures for monitoring
"""
