"""Learning problems: image classification and next-token prediction.

``problem.py`` defines everything that differs between images and text: inputs, targets, figures, evaluation and units.
``find.py`` returns the problem of some records. Problems are stateless.
"""
