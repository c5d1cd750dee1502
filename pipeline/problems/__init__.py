"""Problems: what is learned, one file each (… → stream → **problem** → training → …).

    problem.py               what is asked of each
    find.py                  the problem of records, by their features
    units.py                 what is counted, in the words of a report
    judged.py                by which figure runs are better or worse
    image_classification.py  an image → its label
        image_evaluation.py      what a network gets right and wrong;  augmented.py: what augmentation made of examples
    next_token.py            a text → each next character
        text_evaluation.py       where a network is surprised;  writing.py: the text that it writes itself

Everything that differs between images and text is asked of the problem: what of the records the stream gives, the
shapes of a network, what is predicted and evaluated, which examples are shown, what its units are called. All else is
one mechanism. What is heavy is imported by the functions that need it: the report and the tasks ask for words alone.
"""
