"""The work itself, stage by stage; knows nothing of Luigi.

The data's way, one module or package for each step:

    sources → records → shards → stream → training → runs → report

    sources/        where examples come from: TensorFlow Datasets, images, tables, texts, the placeholder
    records/        what an example holds, and how it becomes bytes
    shards/         the Beam job: blocks of examples → sharded TFRecord files
    stream.py       shards → batched tf.data.Dataset; columns.py: the same for NumPy
    augmentation/   changes of the images that are trained on
    problems/       what is learned: inputs, labels, evaluation
    hardware/       requested device → placement, and the receipt of what was used
    networks/       Keras networks, optimizers and kernels
    training/       compile, fit, evaluate: what makes a run
    runs/           a run's record and metrics, its exports
    report/         runs → scoreboard → JSON, Markdown, HTML
    predict/        what a run says of files that it was not trained on

Beside the way:

    config/         every setting, validated
    artefacts/      fingerprint, manifest, publishing, disk space, staleness
    remote/         artefacts shared through an object store
    errors.py       what users are told when something is wrong
    redaction.py    addresses without their names and passwords
    progress.py     how far a stage is, told to whoever listens
    machine.py      cores, memory and devices of this machine
    stage_process.py  runs stages in a child process; stage_values.py: their values and errors as JSON
    installed.py    whether a module is there, without importing it
"""
