"""Records: Examples ⇄ bytes; the data's second step (source → **records** → shards → …).

    keys.py    the stable id of an example, and what follows from it alone
    fixed.py   records of one length, by array arithmetic

Nothing is handed on here: keys are asked for where TensorFlow is not imported.
"""
