"""Writes config.ini and the tables of docs/settings.md from the declared settings: ``make config``.

Both files have a marked part that this module writes. The rest of them is written by hand.
"""

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from pipeline.config.data import RecordsSettings, SourceSettings
from pipeline.config.experiment import ExperimentSettings
from pipeline.config.report import ReportSettings
from pipeline.config.schema import Setting, Settings, settings_of
from pipeline.config.storage import ForceSettings, MetricsSettings, NotifySettings, StorageSettings
from pipeline.config.training import ExportSettings, RepetitionSettings, TrainSettings

SECTIONS: tuple[type[Settings], ...] = (
    *(StorageSettings, ExperimentSettings, ForceSettings, NotifySettings, MetricsSettings),
    *(SourceSettings, RecordsSettings, TrainSettings, ReportSettings, ExportSettings, RepetitionSettings),
)
_PROJECT = Path(__file__).resolve().parent.parent.parent
_WIDTH = 120


def config_lines(sections: tuple[type[Settings], ...] = SECTIONS) -> Iterator[str]:
    """The lines of config.ini for the sections."""
    for section in sections:
        yield f"\n[{section.section}]"
        yield from _comment(inspect.cleandoc(section.__doc__))
        for setting in settings_of(section):
            yield from ("", *_comment(setting.help))
            if setting.rule:
                yield from _comment(f"Expected: {setting.rule.expected}.")
            yield f"{setting.name} = {setting.written(setting.default)}".rstrip()


def table_lines(sections: tuple[type[Settings], ...] = SECTIONS) -> Iterator[str]:
    """The lines of docs/settings.md for the sections, a Markdown table each."""
    for section in sections:
        yield f"\n## [{section.section}]\n\n{_markdown(inspect.cleandoc(section.__doc__))}\n"
        yield "| setting | default | expected | meaning |\n|---|---|---|---|"
        for setting in settings_of(section):
            default = setting.written(setting.default)
            expected = _markdown(setting.rule.expected) if setting.rule else ""
            yield f"| `{setting.name}` | {default and f'`{default}`'} | {expected} | {_meaning(setting)} |"


def _meaning(setting: Setting) -> str:
    return _markdown(setting.help).replace("\n- ", "<br>• ").replace("\n", " ")


def _markdown(text: str) -> str:
    linked = re.sub(r"docs/([\w-]+\.md)", r"[\1](\1)", re.sub(r"\n +", " ", text))
    return re.sub(r"<(\w+)>", r"&lt;\1&gt;", linked.replace("|", r"\|").replace("*", r"\*"))


def _comment(text: str) -> Iterator[str]:
    for paragraph in re.sub(r"\n +", " ", text).splitlines():
        indent = "#   " if paragraph.startswith("- ") else "# "
        yield from textwrap.wrap(paragraph, _WIDTH, initial_indent="# ", subsequent_indent=indent)


def written(path: Path) -> str:
    """The content of config.ini or docs/settings.md as the settings are declared now."""
    is_page = path.suffix == ".md"
    begin, end = "Written by make config from pipeline/config", "End of what make config writes"
    lines = table_lines() if is_page else config_lines()
    pattern = rf"(?s)(?<={begin} -->\n).*(?=<!-- {end})" if is_page else rf"(?s)(?<={begin}\n).*(?=# {end})"
    return re.sub(pattern, lambda _: "\n".join(lines).lstrip("\n") + "\n\n", path.read_text(encoding="utf-8"))


FILES = (_PROJECT / "config.ini", _PROJECT / "docs" / "settings.md")

if __name__ == "__main__":
    for file in FILES:
        file.write_text(written(file), encoding="utf-8")
