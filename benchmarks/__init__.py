"""Benchmarks: this pipeline and what one would use instead, interleaved on the same bytes.

    python -m benchmarks [part …]        or        make bench ARGS="stream"

A part is a file here that measures a few comparisons; ``baselines/`` has the others, each written as its own
documentation recommends. A part runs in a process of its own, which takes its turns A B A B …: what disturbs the
machine disturbs both, so the ratio of a round holds where single times do not.
"""
