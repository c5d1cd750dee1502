"""Records: Examples ⇄ bytes; the data's second step (source → **records** → shards → …).

    features.py     what an example holds, name by name
    keys.py         the stable id of an example, and what follows from it alone
    fixed.py        records of one length, by array arithmetic
    example.py      records of any length
    form.py         in what form images are stored;  images.py: how they reach it
    vocabulary.py   a text as tokens
    content.py      what of an example is learned from, and what is predicted

Nothing is handed on here: keys are asked for where TensorFlow is not imported.
"""
