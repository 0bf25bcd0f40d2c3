"""Commands in the documentation, and their output."""

from __future__ import annotations

import re
from pathlib import Path

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:[^\n]*\\\n)*[^\n]*)\n((?:(?!\$ )[^\n]*\n)*)", re.MULTILINE)
NUMBER = r"[\d,]*\d(?:\.\d+)?"
CLI_PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
CLI_BLOCKS = BLOCK.findall(CLI_PAGE)


def kprod_command(block: str) -> str:
    """The subcommand of ``kprod`` in a block: produce, topics and so on."""
    found = re.search(r"kprod ([a-z-]+)", block)
    assert found
    return found[1]


def commands(block: str) -> list[tuple[str, str]]:
    return [(shown.replace("\\\n", " "), printed) for shown, printed in COMMAND.findall(block)]


def pattern(printed: str) -> re.Pattern[str]:
    """A pattern for the output, with any numbers, and any text for an ellipsis."""
    parts = []
    for part in re.split(rf"(\.\.\.|{NUMBER})", printed.strip()):
        is_number = re.fullmatch(NUMBER, part)
        parts.append(NUMBER if is_number else ".*" if part == "..." else re.escape(part))
    return re.compile("".join(parts), re.DOTALL)
