"""Measures the writing of the project's texts and prints their worst sentences.

    python -m tests.writing                         measures of all groups
    python -m tests.writing docs                    measures and worst sentences of a group
    python -m tests.writing docs/scale.md pipeline  of files and folders: .md, .py (docstrings and messages), .ini

``--worst 50`` prints more sentences. A sentence is printed with its file and line, its words and the rules it breaks.
"""

import argparse
import ast
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parent.parent
LONG = 35


class Text(NamedTuple):
    """A paragraph, list item or heading. Inline code is one word, ``CODE``."""

    path: str
    line: int
    text: str
    is_heading: bool = False


class Sentence(NamedTuple):
    path: str
    line: int
    text: str
    is_heading: bool = False

    @property
    def words(self) -> int:
        return sum(any(map(str.isalnum, word)) for word in self.text.split())

    @property
    def marks(self) -> int:
        return 0 if self.is_heading else len(re.findall(r"[;:](?=\s|$)", self.text.strip().removesuffix(":")))

    def findings(self) -> list[tuple[str, str]]:
        """Each rule that the sentence breaks, with the words that break it."""
        found = [(rule, match.group()) for rule, pattern in RULES.items() for match in pattern.finditer(self.text)]
        found += [("spelling", word) for word in re.findall(r"[A-Za-z]+", self.text) if word.lower() in british()]
        return [one for one in found if not (self.is_heading and one[0] == "start")]

    def badness(self) -> float:
        return max(0, self.words - 16) / 8 + 2 * self.marks + 3 * len(self.findings())


# Terms that WRITING.md replaces. Common words with another meaning are matched with their context.
TERMS = (
    r"(?<![./])(?<!neural )(?<!no )(?<!without a )(?<!over the )\bnetworks?\b(?! (?:file|share|error|connection))",
    r"\b(learning|classification|prediction|vision|image|text) tasks?\b",
    r"\bval_(accuracy|loss)\b",
    r"\bthings?\b|\bartefacts?\b|\bwhat was made\b",
    r"\bgone\b|\bpending\b(?! notification)",
    r"\b(made|mak(?:e|es|ing)|train(?:s|ed|ing)?)(?: \w+){0,3} (?:again|anew)\b|\banew\b",
    r"\bdoubt\w*|\b(?<!on )demand\w*",
    r"\bfigures?\b(?! \d)",
    r"(?<!its )\bown code\b|\bone's own\b|\bof your own\b(?! (?:data|images|text|model))",
    r"\bcompany\b|\bmeetings?\b|\bhear[sd]?\b|\bbelong\w*|\bsa(?:y|ys|id|ying)\b|\bunsaid\b",
    r"\b(?:tells?|told|owe[sd]?|asks|knows|holds)\b",
    r"\b(?:fell|falls?) silent\b|\brooms?\b|\bnights?\b|\bin turns\b|\bstand-ins?\b",
)
RULES = {
    "start": re.compile(r"^\W*(?:What|Where|Whoever|Of|That which)\b"),
    "term": re.compile("|".join(f"(?:{term})" for term in TERMS), re.IGNORECASE),
    "percent": re.compile(r"\d\s%(?![a-z(])"),
}


@cache
def british() -> frozenset[str]:
    """The British spellings of codespell's dictionary."""
    text = (resources.files("codespell_lib") / "data" / "dictionary_en-GB_to_en-US.txt").read_text()
    return frozenset(line.partition("->")[0] for line in text.splitlines()) | {"storeys", "whilst", "amongst"}


_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|vs|cf|approx|Fig|Sec|Mr|Dr|al|[A-Z])\.$|\.\.$")
_ABBREVIATION_INSIDE = re.compile(r"\b(?:no|pp?|etc)\.$")


def split(text: str) -> list[str]:
    """The sentences of a paragraph."""
    ends = [0]
    for match in re.finditer(r"[.!?][\"'”’)\]*_]*(?=\s)", text):
        before, after = text[: match.start() + 1], text[match.end() :].lstrip()
        inside = re.match(r"[a-z\d]", after) and _ABBREVIATION_INSIDE.search(before)
        if after and not inside and not _ABBREVIATION.search(before):
            ends.append(match.end())
    return [text[start:end] for start, end in zip(ends, [*ends[1:], len(text)], strict=True)]


def sentences(texts: Iterator[Text]) -> Iterator[Sentence]:
    """The sentences of texts. Labels of one or two words do not count."""
    for path, line, text, is_heading in texts:
        for piece in [text] if is_heading else split(text):
            lead = len(piece) - len(piece.lstrip())
            found = Sentence(path, line + piece[:lead].count("\n"), " ".join(piece.split()), is_heading)
            if found.words > 2:
                yield found
            line += piece.count("\n")


def markdown_texts(path: str, text: str) -> Iterator[Text]:
    """Prose of Markdown: no code, tables, link targets, HTML or front matter. rich brings the parser."""
    from markdown_it import MarkdownIt

    text = re.sub(r"\A---\n.*?\n---\n", lambda match: "\n" * match.group().count("\n"), text, flags=re.DOTALL)
    # The content of MkDocs's admonitions and tabs is indented.
    lines, inside = [], False
    for line in text.split("\n"):
        if re.match(r"(!!!|\?\?\?\+?|===\+?) ", line):
            inside, line = True, ""
        elif line.strip() and not line.startswith("    "):
            inside = False
        lines.append(line[4:] if inside else line)
    in_table, heading = False, False
    for token in MarkdownIt().enable("table").parse("\n".join(lines)):
        in_table = {"table_open": True, "table_close": False}.get(token.type, in_table)
        heading = {"heading_open": True, "heading_close": False}.get(token.type, heading)
        if token.type == "inline" and not in_table:
            kinds = {"code_inline": "CODE", "softbreak": "\n", "hardbreak": "\n"}
            parts = [
                kinds.get(child.type, "" if child.type == "html_inline" else child.content) for child in token.children
            ]
            yield Text(path, token.map[0] + 1, "".join(parts), heading)


def plain_texts(path: str, first: int, text: str) -> Iterator[Text]:
    """Prose of a docstring or a comment: paragraphs, list items and the entries of Google's sections."""
    section, block, start = False, [], first
    for number, line in enumerate([*text.split("\n"), ""], first):
        begins = re.match(r"\s*(?:[-*•] |\d+\. |[A-Z]\w+:$)", line) or (section and re.match(r"    \S", line))
        if block and (not line.strip() or begins):
            yield Text(path, start, "\n".join(block))
            block = []
        if re.fullmatch(r"(?:Args|Returns|Raises|Yields|Attributes|Examples?|Note):", line):
            section = True
        elif line.strip():
            section = section and line.startswith("    ")
            is_code = (line.startswith("    ") and not section and not block) or re.search(
                r"^>>>|^\||^\w+ ?= ?\S*$|\S {3,}\S", line
            )
            if not is_code:
                start = start if block else number
                entry = r"^    (?:[\w.*]+(?:, |/)?)+(?: \(.*?\))?: " if section else r"^\s*(?:[-*•]|\d+\.) "
                block.append(_without_code(line if block else re.sub(entry, "", line)).strip())


def _without_code(text: str) -> str:
    return re.sub(r"``[^`]+``|`[^`]+`", "CODE", text)


def docstring_texts(path: str, text: str) -> Iterator[Text]:
    """Docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from plain_texts(path, node.lineno, inspect.cleandoc(node.value.value))


def message_texts(path: str, text: str) -> Iterator[Text]:
    """Texts of errors, log calls, output and functions decorated with ``@message``. A value is one word, ``CODE``."""
    seen: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if _has_messages(node):
            docstring = ast.get_docstring(node, clean=False) if isinstance(node, ast.FunctionDef) else None
            for line, message in _strings(node, seen):
                if " " in message.strip() and message != docstring:
                    yield Text(path, line, message)


def _has_messages(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef):
        return any(isinstance(one, ast.Name) and one.id == "message" for one in node.decorator_list)
    if isinstance(node, ast.Raise):
        return True
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        levels = ("debug", "info", "warning", "error", "exception", "critical", "log")
        owner, name = function.value.id, function.attr
        return ("logg" in owner.lower() and name in levels) or (owner, name) in (
            ("progress", "tell"),
            ("warnings", "warn"),
        )
    name = function.id if isinstance(function, ast.Name) else ""
    return name.endswith("Error") or name.lstrip("_") in ("refuse", "refusal", "print")


def _strings(node: ast.AST, seen: set[int]) -> Iterator[tuple[int, str]]:
    """The texts below a node, joined where they are added. Keys of dictionaries and attributes are no texts."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, ast.BinOp | ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        whole, nested = _joined(node)
        yield getattr(node, "lineno", 0), whole
        for value in nested:
            yield from _strings(value, seen)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _strings(child, seen)


def _joined(node: ast.AST) -> tuple[str, list[ast.AST]]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        # A colon next to a value introduces it, as in "Path does not exist: flowers/".
        return re.sub(r": *(?=%[sdr])|(?<=%[sdr]):|^:|: ?$", " ", _without_code(node.value)), []
    if isinstance(node, ast.JoinedStr):
        parts = [_joined(value) for value in node.values]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [_joined(node.left), _joined(node.right)]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant):
        parts = [_joined(node.left), ("", [node.right])]
    else:
        return "CODE", [node.value if isinstance(node, ast.FormattedValue) else node]
    return "".join(text for text, _ in parts), [value for _, values in parts for value in values]


def settings_texts(path: str, text: str) -> Iterator[Text]:
    """The comments of a settings file."""
    comments = [line[1:].removeprefix(" ") if line.startswith("#") else "" for line in text.split("\n")]
    yield from plain_texts(path, 1, "\n".join(comments))


_HELP = """
import contextlib
from tasks.cli import COMMANDS, dispatch
for argv in (["--help"], *([name, "--help"] for name in COMMANDS)):
    print("#", " ".join(argv))
    with contextlib.suppress(SystemExit):
        dispatch(argv)
"""


def help_texts() -> Iterator[Text]:
    """The output of ``--help`` and of ``<command> --help``."""
    environment = {**os.environ, "COLUMNS": "1000", "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, "-c", _HELP], cwd=PROJECT, env=environment, capture_output=True, text=True, check=True
    )
    command, number, seen = "", 0, set()
    for line in done.stdout.splitlines():
        number += 1
        if line.startswith("# "):
            command, number = f"tensorcraft {line[2:]}", 0
        elif line not in seen and not re.match(r"usage: |\S[\w ]+:$| {16,}\[| {2}-\S*( \S+)?$", line):
            seen.add(line)
            yield Text(command, number, _without_code(re.split(r"(?<=\S) {2,}", line)[-1].strip()))


READERS = {".md": (markdown_texts,), ".ini": (settings_texts,), ".py": (docstring_texts, message_texts)}


def file_texts(path: Path, readers: tuple = ()) -> Iterator[Text]:
    name = str(path.relative_to(PROJECT)) if path.is_relative_to(PROJECT) else str(path)
    for reader in readers or READERS.get(path.suffix, ()):
        yield from reader(name, path.read_text(encoding="utf-8"))


def _files(*patterns: str) -> list[Path]:
    found = {path for pattern in patterns for path in PROJECT.glob(pattern) if path.suffix in READERS}
    return sorted(found - {PROJECT / "docs" / "LOG.md"})


GROUPS = {
    "readme": lambda: (text for path in _files("README.md") for text in file_texts(path)),
    "docs": lambda: (text for path in _files("docs/**/*.md") for text in file_texts(path)),
    "settings": lambda: (text for path in _files("config.ini") for text in file_texts(path)),
    "help": help_texts,
    "messages": lambda: (
        text for path in _files("pipeline/**/*.py", "tasks/**/*.py") for text in file_texts(path, (message_texts,))
    ),
    "docstrings": lambda: (
        text for path in _files("pipeline/**/*.py", "tasks/**/*.py") for text in file_texts(path, (docstring_texts,))
    ),
}


@dataclass
class Measures:
    """Measures of some sentences. Headings count only for words and spellings."""

    sentences: list[Sentence]
    values: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        prose = [one for one in self.sentences if not one.is_heading]
        found = [rule for one in self.sentences for rule, _ in one.findings()]
        count = max(1, len(prose))
        self.values = {
            "mean": round(sum(one.words for one in prose) / count, 2),
            "long": round(100 * sum(one.words > LONG for one in prose) / count, 2),
            "marks": round(sum(one.marks for one in prose) / count, 3),
            **{rule: found.count(rule) for rule in ("start", "spelling", "term", "percent")},
        }

    def worst(self, count: int = 20) -> str:
        """The worst sentences, one a line, with the rules that they break."""
        bad = [one for one in self.sentences if one.badness() > 0]
        return "\n".join(
            f"{one.path}:{one.line}: {one.words} words, {one.marks} marks"
            f"{''.join(f', {rule} {text!r}' for rule, text in one.findings())}: {one.text}"
            for one in sorted(bad, key=Sentence.badness, reverse=True)[:count]
        )


def measured(group: str) -> Measures:
    return Measures(list(sentences(GROUPS[group]())))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the writing of groups, files and folders.")
    parser.add_argument("places", nargs="*", help=f"any of {', '.join(GROUPS)}, or files and folders")
    parser.add_argument("--worst", type=int, default=20, help="number of sentences to print")
    arguments = parser.parse_args()
    print(f"{'':30} {'sentences':>9} mean(16) long%(2) marks(.1) start spelling term percent")
    for place in arguments.places or GROUPS:
        path = Path(place).resolve()
        files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.suffix in READERS)
        texts = GROUPS[place]() if place in GROUPS else (text for one in files for text in file_texts(one))
        measures = Measures(list(sentences(texts)))
        row = " ".join(f"{value:>7}" for value in measures.values.values())
        print(f"{place:30} {len(measures.sentences):>9} {row}")
        if arguments.places:
            print(measures.worst(arguments.worst))


if __name__ == "__main__":
    main()
