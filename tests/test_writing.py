"""The texts of the project keep to limits of length, punctuation, spelling and terms."""

import pytest
import writing
from writing import Measures, Text

#: The limits to reach: words per sentence, percent of sentences above 35 words, colons and semicolons per sentence, and
#: numbers of findings. The table has the present limits of each group. Lower them when a text improves.
FINAL = {"mean": 16, "long": 2, "marks": 0.1, "start": 0, "spelling": 0, "term": 0, "percent": 0}
LIMITS = {
    "readme": {"mean": 19.14, "long": 8.51, "marks": 0.755, "start": 4, "spelling": 2, "term": 40, "percent": 2},
    "docs": {"mean": 17.43, "long": 5.78, "marks": 0.408, "start": 28, "spelling": 27, "term": 115, "percent": 22},
    "settings": {},
    "help": {},
    "messages": {"marks": 0.189, "start": 1, "spelling": 6, "term": 61},
    "docstrings": {"marks": 0.179, "start": 36, "spelling": 8, "term": 104},
}


@pytest.mark.parametrize("group", LIMITS)
def test_a_group_of_texts_keeps_to_its_limits(group):
    measures = writing.measured(group)
    assert len(measures.sentences) > 50
    limits = {**FINAL, **LIMITS[group]}
    exceeded = {name: value for name, value in measures.values.items() if value > limits[name]}
    assert not exceeded, f"{exceeded}, limits {limits}. The worst sentences:\n{measures.worst()}"


@pytest.mark.parametrize(
    ("paragraph", "expected"),
    [
        ("Run it. Then wait.", ["Run it.", "Then wait."]),
        ("Does it work? Yes! It does.", ["Does it work?", "Yes!", "It does."]),
        ("Use a runner, e.g. Flink, i.e. a cluster.", ["Use a runner, e.g. Flink, i.e. a cluster."]),
        ("Copy files, links, etc. and go on. See Fig. 3.", ["Copy files, links, etc. and go on.", "See Fig. 3."]),
        (
            "TensorFlow 2.21 needs Python 3.11. Keras is 3.15.1.",
            ["TensorFlow 2.21 needs Python 3.11.", "Keras is 3.15.1."],
        ),
        ("Read code.py or config.ini. It is short.", ["Read code.py or config.ini.", "It is short."]),
        ("It ends with exit code 5. wait continues.", ["It ends with exit code 5.", "wait continues."]),
        ('He calls it "done." (It is.) Good.', ['He calls it "done."', "(It is.)", "Good."]),
        ("It waits ... and ends. J. Smith wrote it.", ["It waits ... and ends.", "J. Smith wrote it."]),
    ],
)
def test_a_paragraph_is_split_into_sentences(paragraph, expected):
    assert [" ".join(piece.split()) for piece in writing.split(paragraph)] == expected


def texts_of(reader, text: str) -> list[tuple[int, str]]:
    return [(one.line, one.text) for one in reader("a", text)]


def test_markdown_is_read_without_code_tables_targets_and_html():
    page = """---
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
    expected = [
        (4, "A heading of four words"),
        (6, "Run CODE\nand read the page."),
        (9, "first item"),
        (10, "second item:"),
        (21, "The note is read."),
    ]
    assert texts_of(writing.markdown_texts, page) == expected
    assert [one.is_heading for one in writing.markdown_texts("a", page)] == [True, False, False, False, False]


def test_docstrings_are_read_by_paragraph_list_item_and_entry():
    module = '''def f():
    """Do ``it``.

    A layout:

        code = not read

    - first
      item
    - second

    Args:
        a: the first
            argument.

    Raises:
        OSError, ValueError: it fails.
    """
    x = 1
    """A variable."""
'''
    expected = ["Do CODE.", "A layout:", "first\nitem", "second", "the first\nargument.", "it fails.", "A variable."]
    read = texts_of(writing.docstring_texts, module)
    assert [text for _, text in read] == expected
    assert [line for line, _ in read] == [2, 4, 8, 10, 13, 17, 20]


def test_messages_are_read_from_errors_logs_output_and_message_functions():
    module = '''
@message
def wrong(path):
    """Build it."""
    return f"{path}: does not exist: {path!r}. Pass a folder."

def other():
    raise ValueError("first part " "of one" + f" text of {sum('not text')} words")
    _logger.warning("%s is left: %s", name, "a nested text")
    print("some output")
    return "not a message", {"no": "message here"}
'''
    read = [text for _, text in texts_of(writing.message_texts, module)]
    assert {" ".join(text.split()) for text in read} == {
        "CODE does not exist CODE. Pass a folder.",
        "first part of one text of CODE words",
        "not text",
        "%s is left %s",
        "a nested text",
        "some output",
    }


def test_comments_of_settings_are_read():
    text = "# First line\n# goes on.\n\n[Section]\n# - an item\n#   of two lines\nname = value\n#     code here\n"
    assert [one for _, one in texts_of(writing.settings_texts, text)] == [
        "First line\ngoes on.",
        "an item\nof two lines",
    ]


@pytest.mark.parametrize(
    ("sentence", "finding"),
    [
        ("What it needs is a folder.", ("start", "What")),
        ("Where it runs does not matter.", ("start", "Where")),
        ("Whoever runs it needs a key.", ("start", "Whoever")),
        ("Of the runs two failed.", ("start", "Of")),
        ("That which fails is listed.", ("start", "That which")),
        ("The normalisation is exact.", ("spelling", "normalisation")),
        ("It reached 75.6 % on test.", ("percent", "6 %")),
        ("Train the network for an hour.", ("term", "network")),
        ("The file says nothing more.", ("term", "says")),
        ("The figures are in the table.", ("term", "figures")),
        ("The stage makes it again.", ("term", "makes it again")),
        ("It uses a stand-in dataset.", ("term", "stand-in")),
    ],
)
def test_a_bad_sentence_is_found(sentence, finding):
    (found,) = writing.sentences([Text("a", 1, sentence)])
    assert found.findings() == [finding]


@pytest.mark.parametrize(
    "sentence",
    [
        "A file is missing on the network file system.",
        "Luigi starts each task of the DAG.",
        "Figure 3 shows the known and the pending notification.",
        "The command has its own exit code, and 5% fail.",
        "It copies files on demand, without a network.",
    ],
)
def test_a_common_word_with_another_meaning_is_no_finding(sentence):
    (found,) = writing.sentences([Text("a", 1, sentence)])
    assert not found.findings()


def test_measures_count_words_marks_and_long_sentences():
    texts = [
        Text("a", 1, "What you get: a heading", is_heading=True),
        Text("a", 3, "One two three; four: five.\nSix seven eight: nine:"),
        Text("a", 6, " ".join(["word"] * 36) + "."),
        Text("a", 7, "At 10:30 it\nends"),
        Text("a", 8, "Label only"),
    ]
    measures = Measures(list(writing.sentences(texts)))
    assert [(one.line, one.words, one.marks) for one in measures.sentences[1:]] == [
        *((3, 5, 2), (4, 4, 1), (6, 36, 0), (7, 4, 0)),
    ]
    assert measures.values == {
        "mean": 12.25,
        "long": 25,
        "marks": 0.75,
        "start": 0,
        "spelling": 0,
        "term": 0,
        "percent": 0,
    }
    assert measures.worst(1).startswith("a:3: 5 words, 2 marks: One two")
