"""Predict: what a trained network says of files that it was not trained on (… → run → **predictions**).

    plan.py    what every step needs to know
    job.py     the Beam job, and the joining of its parts
    images.py  labels and probabilities of images;  texts.py: nats a character of texts

Its parts are asked for where Beam is imported: nothing is handed on here.
"""
