"""Benchmarks: this pipeline and what one would use instead, interleaved on the same bytes.

    python -m benchmarks [part …]        or        make bench ARGS="stream"

A part is a file here that measures a few comparisons; ``baselines/`` has the others, each written as its own
documentation recommends. A part runs in a process of its own, which takes its turns A B A B …: what disturbs the
machine disturbs both, so the ratio of a round holds where single times do not.
"""

#: Settings of the tutorials' CNN for CIFAR-10. ``auto`` chooses the same.
BASELINE = {
    "model": "baseline_cnn",
    "training_recipe": "onecycle",
    "epochs": 5,
    "global_batch_size": 128,
    "augment": "",
}
