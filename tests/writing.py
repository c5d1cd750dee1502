"""Measures the writing of the project's texts and prints their worst sentences.

    python -m tests.writing                         measures of all groups
    python -m tests.writing docs --worst 50         measures and worst sentences of a group
    python -m tests.writing docs/index.md pipeline  of files and folders (.md, .ini, docstrings and messages of .py)

A sentence is printed with its file and line, its words, its colons and semicolons (marks) and the rules it breaks.
"""

import argparse
import ast
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parent.parent
# Terms that the project replaces. Common words with another meaning are matched with their context.
_TERMS = (
    r"(?<![./])(?<!neural )(?<!no )(?<!without a )\bnetworks?\b(?! (?:file|share|error|connection|failure))",
    r"\b(?:learning|classification|prediction|vision|image|text) tasks?\b|\bval_(?:accuracy|loss)\b",
    r"\bthings?\b|\bartefacts?\b|\bwhat was made\b|\bgone\b|\bpending\b(?! notification)|\banew\b",
    r"\b(?:made|mak(?:e|es|ing)|train(?:s|ed|ing)?)(?: \w+){0,3} (?:again|anew)\b",
    r"\bdoubt\w*|(?<!on )\bdemand\w*|\bfigures?\b(?! \d)|\brooms?\b|\bnights?\b|\bin turns\b|\bstand-ins?\b",
    r"(?<!its )\bown code\b|\bone's own\b|\bof your own\b(?! (?:data|images|text|model))",
    r"\bcompany\b|\bmeetings?\b|\bhear[sd]?\b|\bbelong\w*|\bsa(?:y|ys|id|ying)\b|\bunsaid\b",
    r"\b(?:tells?|told|owe[sd]?|asks|knows|holds)\b|\b(?:fell|falls?) silent\b",
)
_RULES = {
    "start": re.compile(r"^\W*(?:What|Where|Whoever|Of|That which)\b"),
    "term": re.compile("|".join(f"(?:{term})" for term in _TERMS), re.IGNORECASE),
    "percent": re.compile(r"\d\s%(?![a-z(])"),
}
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|vs|cf|approx|Fig|Sec|Mr|Dr|al|[A-Z])\.$|\.\.$")
_ABBREVIATION_INSIDE = re.compile(r"\b(?:no|pp?|etc)\.$")


class Text(NamedTuple):
    """A heading, a paragraph or a sentence of it. Inline code is one word, ``CODE``."""

    path: str
    line: int
    text: str
    is_heading: bool = False

    @property
    def words(self) -> int:
        return sum(any(map(str.isalnum, word)) for word in self.text.split())

    @property
    def marks(self) -> int:
        """Colons and semicolons. The last colon of a paragraph introduces a list or a block and does not count."""
        return 0 if self.is_heading else len(re.findall(r"[;:](?=\s|$)", self.text.removesuffix(":")))

    def findings(self) -> list[tuple[str, str]]:
        """Each rule that the sentence breaks, with the words that break it."""
        found = [(rule, match.group()) for rule, pattern in _RULES.items() for match in pattern.finditer(self.text)]
        found += [("spelling", word) for word in re.findall(r"[A-Za-z]+", self.text) if word.lower() in british()]
        return [one for one in found if not (self.is_heading and one[0] == "start")]

    def badness(self) -> float:
        return max(0, self.words - 16) / 8 + 2 * self.marks + 3 * len(self.findings())

    def __str__(self) -> str:
        findings = "".join(f", {rule} {words!r}" for rule, words in self.findings())
        return f"{self.path}:{self.line}: {self.words} words, {self.marks} marks{findings}: {self.text}"


@cache
def british() -> frozenset[str]:
    """The British spellings of codespell's dictionary."""
    text = (resources.files("codespell_lib") / "data" / "dictionary_en-GB_to_en-US.txt").read_text()
    return frozenset(line.partition("->")[0] for line in text.splitlines())


def split(paragraph: str) -> list[str]:
    """The sentences of a paragraph."""
    ends = [0]
    for match in re.finditer(r"[.!?][\"'”’)\]*_]*(?=\s)", paragraph):
        before, after = paragraph[: match.start() + 1], paragraph[match.end() :].lstrip()
        inside = re.match(r"[a-z\d]", after) and _ABBREVIATION_INSIDE.search(before)
        if after and not inside and not _ABBREVIATION.search(before):
            ends.append(match.end())
    return [paragraph[start:end] for start, end in zip(ends, [*ends[1:], len(paragraph)], strict=True)]


def sentences(texts: Iterable[Text]) -> list[Text]:
    """The sentences of texts. Labels of one or two words do not count."""
    found = []
    for path, line, text, is_heading in texts:
        for piece in [text] if is_heading else split(text):
            lead = piece[: len(piece) - len(piece.lstrip())].count("\n")
            found.append(Text(path, line + lead, " ".join(piece.split()), is_heading))
            line += piece.count("\n")
    return [one for one in found if one.words > 2]


def measures(found: Sequence[Text]) -> dict[str, float]:
    """Words per sentence, percent of sentences above 35 words, marks per sentence, and numbers of findings.

    Headings count only for terms and spellings.
    """
    prose = [one for one in found if not one.is_heading]
    rules = [rule for one in found for rule, _ in one.findings()]
    return {
        "mean": round(sum(one.words for one in prose) / max(1, len(prose)), 2),
        "long": round(100 * sum(one.words > 35 for one in prose) / max(1, len(prose)), 2),
        "marks": round(sum(one.marks for one in prose) / max(1, len(prose)), 3),
        **{rule: rules.count(rule) for rule in ("start", "spelling", "term", "percent")},
    }


def worst(found: Sequence[Text], count: int = 20) -> str:
    """The worst sentences, one a line."""
    bad = [one for one in found if one.badness() > 0]
    return "\n".join(map(str, sorted(bad, key=Text.badness, reverse=True)[:count]))


def _without_code(text: str) -> str:
    return re.sub(r"``[^`]+``|`[^`]+`", "CODE", text)


def markdown(path: str, text: str) -> Iterator[Text]:
    """Prose of Markdown: no code, tables, link targets, HTML or front matter. rich brings the parser."""
    from markdown_it import MarkdownIt

    text = re.sub(r"\A---\n.*?\n---\n", lambda match: "\n" * match.group().count("\n"), text, flags=re.DOTALL)
    # The content of MkDocs's admonitions and tabs is indented.
    lines, inside = [], False
    for line in text.split("\n"):
        opens = re.match(r"(!!!|\?\?\?\+?|===\+?) ", line)
        inside = bool(opens) or (inside and (not line.strip() or line.startswith("    ")))
        lines.append("" if opens else line[4:] if inside else line)
    in_table, is_heading = False, False
    for token in MarkdownIt().enable("table").parse("\n".join(lines)):
        in_table = {"table_open": True, "table_close": False}.get(token.type, in_table)
        is_heading = {"heading_open": True, "heading_close": False}.get(token.type, is_heading)
        if token.type == "inline" and not in_table:
            kinds = {"code_inline": "CODE", "softbreak": "\n", "hardbreak": "\n", "html_inline": ""}
            parts = [kinds.get(one.type, one.content) for one in token.children]
            yield Text(path, token.map[0] + 1, "".join(parts), is_heading)


def plain(path: str, first: int, text: str) -> Iterator[Text]:
    """Prose of a docstring or of comments: paragraphs, list items and the entries of Google's sections."""
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
            indented = line.startswith("    ") and not section and not block
            if not indented and not re.search(r"^>>>|^\||^\w+ ?= ?\S*$|\S {3,}\S", line):
                start = start if block else number
                lead = r"^    (?:[\w.*]+(?:, |/)?)+(?: \(.*?\))?: " if section else r"^\s*(?:[-*•]|\d+\.) "
                block.append(_without_code(line if block else re.sub(lead, "", line)).strip())


def settings(path: str, text: str) -> Iterator[Text]:
    """The comments of a settings file."""
    comments = [line[1:].removeprefix(" ") if line.startswith("#") else "" for line in text.split("\n")]
    return plain(path, 1, "\n".join(comments))


def docstrings(path: str, text: str) -> Iterator[Text]:
    """Docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from plain(path, node.lineno, inspect.cleandoc(node.value.value))


def messages(path: str, text: str) -> Iterator[Text]:
    """Texts of errors, log calls, output and functions decorated with ``@message``. A value is one word, ``CODE``."""
    seen: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        docstring = ast.get_docstring(node, clean=False) if isinstance(node, ast.FunctionDef) else None
        for line, message in _strings(node, seen) if _has_messages(node) else ():
            if " " in message.strip() and message != docstring:
                # The name of a setting or command begins a message.
                yield Text(path, line, re.sub(r"^((?:\[\w+\] )?[\w-]+|command line): ", r"\1 ", message))


def _has_messages(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef):
        return any(isinstance(one, ast.Name) and one.id == "message" for one in node.decorator_list)
    name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    logs = r"_?logg(?:er|ing)\.(?:debug|info|warning|error|exception|critical|log)|progress\.report|warnings\.warn"
    return isinstance(node, ast.Raise) or bool(re.fullmatch(rf"{logs}|\w*Error|_?refus(?:e|al)|print", name))


def _strings(node: ast.AST, seen: set[int]) -> Iterator[tuple[int, str]]:
    """The texts below a node with their lines. Texts that are joined are one."""
    if id(node) in seen:
        return
    seen.add(id(node))
    is_text = isinstance(node, ast.BinOp | ast.JoinedStr | ast.Constant)
    whole, below = _joined(node) if is_text else ("", [*ast.iter_child_nodes(node)])
    yield getattr(node, "lineno", 0), whole
    for child in below:
        yield from _strings(child, seen)


def _joined(node: ast.AST) -> tuple[str, list[ast.AST]]:
    """The text that a node makes, and the values in it."""
    if isinstance(node, ast.Constant):
        # A colon next to a value introduces it, as in "Path does not exist: flowers/".
        text = _without_code(node.value) if isinstance(node.value, str) else ""
        return re.sub(r": *(?=%[sdr])|(?<=%[sdr]):|^:|: ?$", " ", text), []
    if isinstance(node, ast.JoinedStr):
        parts = [_joined(value) for value in node.values]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [_joined(node.left), _joined(node.right)]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        parts = [_joined(node.left), ("", [node.right])]
    else:
        children = [*ast.iter_child_nodes(node)] if isinstance(node, ast.BinOp) else [getattr(node, "value", node)]
        return "CODE", children
    return "".join(text for text, _ in parts), [value for _, values in parts for value in values]


def help_output() -> Iterator[Text]:
    """The output of ``make help``, ``--help`` and ``<command> --help``. Repeated lines count once."""
    for number, line in enumerate((PROJECT / "Makefile").read_text().splitlines(), 1):
        if target := re.match(r"[a-z-]+:.*## (.*)", line):
            yield Text("Makefile", number, target[1])
    code = """
import contextlib
from tasks.__main__ import COMMANDS, dispatch
for argv in (["--help"], *([name, "--help"] for name in COMMANDS)):
    print("#", " ".join(argv))
    with contextlib.suppress(SystemExit):
        dispatch(argv)
"""
    environment = {**os.environ, "COLUMNS": "1000", "PYTHONPATH": str(PROJECT)}
    run = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, env=environment, capture_output=True, check=True)
    command, first, seen = "", 0, set()
    for number, line in enumerate(run.stdout.decode().splitlines()):
        if line.startswith("# "):
            command, first = f"tensorcraft {line[2:]}", number
        elif line not in seen and not re.match(r"usage: |\S[\w ]+:$| {16,}\[| {2}-\S*( \S+)?$", line):
            seen.add(line)
            yield Text(command, number - first, _without_code(re.split(r"(?<=\S) {2,}", line)[-1].strip()))


_READERS = {".md": (markdown,), ".ini": (settings,), ".py": (docstrings, messages)}


def read(paths: Iterable[Path], *readers: Callable[[str, str], Iterator[Text]]) -> Iterator[Text]:
    """The texts of files and of all files in folders."""
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            name = str(file.relative_to(PROJECT)) if file.is_relative_to(PROJECT) else str(file)
            for reader in readers or _READERS.get(file.suffix, ()):
                if reader in _READERS.get(file.suffix, ()):
                    yield from reader(name, file.read_text(encoding="utf-8"))


GROUPS: dict[str, Callable[[], Iterator[Text]]] = {
    "readme": lambda: read([PROJECT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")]),
    "docs": lambda: read(sorted({*(PROJECT / "docs").rglob("*.md")} - {PROJECT / "docs" / "LOG.md"})),
    "settings": lambda: read([PROJECT / "config.ini"]),
    "help": help_output,
    "messages": lambda: read([PROJECT / "pipeline", PROJECT / "tasks"], messages),
    "docstrings": lambda: read([PROJECT / "pipeline", PROJECT / "tasks"], docstrings),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the writing of groups, files and folders.")
    parser.add_argument("places", nargs="*", help=f"any of {', '.join(GROUPS)}, or files and folders")
    parser.add_argument("--worst", type=int, default=20, help="number of sentences to print")
    arguments = parser.parse_args()
    print(f"{'':30} {'sentences':>9} mean(16) long%(2) marks(.1) start spelling term percent")
    for place in arguments.places or GROUPS:
        found = sentences(GROUPS[place]() if place in GROUPS else read([Path(place).resolve()]))
        print(f"{place:30} {len(found):>9} {' '.join(f'{value:>7}' for value in measures(found).values())}")
        if arguments.places:
            print(worst(found, arguments.worst))


if __name__ == "__main__":
    main()
