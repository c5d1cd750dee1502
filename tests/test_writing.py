"""The texts of the project keep to limits of length, punctuation, spelling and terms."""

import pytest
import writing
from writing import Text

#: The limits to reach: words per sentence, percent of sentences above 35 words, colons and semicolons per sentence, and
#: numbers of findings.
LIMITS = {"mean": 16, "long": 2, "marks": 0.1, "start": 0, "spelling": 0, "term": 0, "percent": 0}


@pytest.mark.parametrize("group", writing.GROUPS)
def test_a_group_of_texts_keeps_to_its_limits(group):
    found = writing.sentences(writing.GROUPS[group]())
    assert len(found) > 40
    exceeded = {name: value for name, value in writing.measures(found).items() if value > LIMITS[name]}
    assert not exceeded, f"{exceeded}, limits {LIMITS}. The worst sentences:\n{writing.worst(found)}"


@pytest.mark.parametrize(
    "expected",
    [
        ["Does it work?", "Yes!", "It does."],
        ["Use a runner, e.g. Flink, i.e. a cluster.", "Wait."],
        ["Copy files, links, etc. and go on.", "See Fig. 3."],
        ["Keras 3.15 needs Python 3.11.", "Use version 2.21."],
        ["Read code.py or config.ini.", "It is short."],
        ["It ends with exit code 5.", "wait continues."],
        ['He calls it "done."', "(It is.)", "Good."],
        ["It waits ... and ends.", "J. Smith wrote it."],
    ],
)
def test_a_paragraph_is_split_into_sentences(expected):
    assert list(map(str.strip, writing.split(" ".join(expected)))) == expected


MARKDOWN = """---
title: front matter
---
# A heading of four words

Run `make status`
and read [the page](https://example.org/a;b:c).

- first item
- second item:

```
code; code: code
```

| a table | is data |
|---|---|
| not | read |

!!! note
    The note is read.

<div>not read</div>
"""
PYTHON = '''
def f():
    """Do ``it``.

    A layout:

        code = not read

    - first
      item

    Args:
        a: the first
            argument.

    Raises:
        OSError, ValueError: it fails.
    """
    x = 1
    """A variable."""

@message
def wrong(path):
    return f"{path}: does not exist: {path!r}. Pass a folder."

def other():
    raise ValueError("[Train] name: first part " "of one" + f" text of {sum('not text')} words")
    _logger.warning("%s is left: %s", name, "a nested text")
    print("some output")
    return "not a message", {"no": "message here"}
'''
SETTINGS = "# First line\n# goes on.\n\n[Section]\n# - an item\n#   of two lines\nname = value\n#     code here\n"


@pytest.mark.parametrize(
    ("reader", "text", "expected"),
    [
        (
            writing.markdown,
            MARKDOWN,
            "4 A heading of four words/6 Run CODE and read the page./9 first item/10 second item:/21 The note is read.",
        ),
        (
            writing.docstrings,
            PYTHON,
            "3 Do CODE./5 A layout:/9 first item/13 the first argument./17 it fails./20 A variable.",
        ),
        (
            writing.messages,
            PYTHON,
            "24 CODE does not exist CODE. Pass a folder./27 [Train] name first part of one text of CODE words/"
            "27 not text/28 %s is left %s/28 a nested text/29 some output",
        ),
        (writing.settings, SETTINGS, "1 First line goes on./5 an item of two lines"),
    ],
)
def test_the_prose_of_a_file_is_read_with_its_lines(reader, text, expected):
    found = sorted(reader("a", text), key=lambda one: one.line)
    assert "/".join(f"{one.line} {' '.join(one.text.split())}" for one in found) == expected
    assert [one.line for one in found if one.is_heading] == ([4] if reader is writing.markdown else [])


@pytest.mark.parametrize(
    ("sentence", "findings"),
    [
        ("What it needs is a folder.", [("start", "What")]),
        ("Where it runs does not matter.", [("start", "Where")]),
        ("Whoever runs it needs a key.", [("start", "Whoever")]),
        ("Of the runs two failed.", [("start", "Of")]),
        ("That which fails is listed.", [("start", "That which")]),
        ("The normalisation is exact.", [("spelling", "normalisation")]),
        ("It reached 75.6 % on test.", [("percent", "6 %")]),
        ("Train the network for an hour.", [("term", "network")]),
        ("The file says nothing more.", [("term", "says")]),
        ("The figures are in the table.", [("term", "figures")]),
        ("The stage makes it again.", [("term", "makes it again")]),
        ("It uses a stand-in dataset.", [("term", "stand-in")]),
        ("A file is missing on the network file system.", []),
        ("Luigi starts each task of the DAG.", []),
        ("Figure 3 shows the known and the pending notification.", []),
        ("The command has its own exit code, and 5% fail.", []),
        ("It copies files on demand, without a network.", []),
    ],
)
def test_words_against_the_rules_are_found(sentence, findings):
    (found,) = writing.sentences([Text("a", 1, sentence)])
    assert found.findings() == findings


def test_measures_count_words_marks_and_long_sentences():
    texts = [
        Text("a", 1, "What you get: a heading", is_heading=True),
        Text("a", 3, "One two three; four: five.\nSix seven eight: nine:"),
        Text("a", 6, " ".join(["word"] * 36) + "."),
        Text("a", 7, "At 10:30 it\nends"),
        Text("a", 8, "Label only"),
    ]
    found = writing.sentences(texts)
    assert [(one.line, one.words, one.marks) for one in found[1:]] == [(3, 5, 2), (4, 4, 1), (6, 36, 0), (7, 4, 0)]
    assert writing.measures(found) == {**LIMITS, "mean": 12.25, "long": 25, "marks": 0.75}
    assert writing.worst(found, 1) == "a:3: 5 words, 2 marks: One two three; four: five."
