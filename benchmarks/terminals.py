"""The terminals of the documentation: the commands of users, run and drawn as they end.

    python -m benchmarks.terminals

runs ``kprod perf``, ``kprod demo`` and ``kprod pipeline`` with embedded brokers in a terminal, and
draws what stands there at the end: ``docs/terminals``. It takes a minute or two, and should have
the machine for itself.
"""

from __future__ import annotations

import io
import os
import pty
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

from kprod.broker import EmbeddedBroker
from kprod.cli.demo.flights import Flights

PLACE = Path(__file__).parents[1] / "docs" / "terminals"
WIDTH, HEIGHT = 80, 60
FLIGHTS, PARTITIONS = "flights.csv", 6
TO_THE_BROKER = "localhost:9092"
COMMANDS = {
    "perf": "kprod perf --keys 1000 --records 3000000",
    "demo": "kprod demo",
    "pipeline": (
        f"kprod pipeline --read {FLIGHTS} --format csv --read-option header=true"
        " --sql \"select * from input where origin = 'JFK'\" --column key=tailnum"
        f" --value-format json --topic flights --bootstrap-servers {TO_THE_BROKER}"
    ),
}
FORMAT = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<title>TITLE</title>
<style>
.{unique_id}-matrix {{
  font: {char_height}px ui-monospace, monospace; line-height: {line_height}px
}}
.{unique_id}-title {{ font: bold 18px system-ui, sans-serif }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
COLOURS = {"brown": "yellow", "default": None}
"""Names of the emulated terminal that Rich has other names for."""


def recorded(command: str, folder: Path, servers: str) -> pyte.Screen:
    """The screen after ``command``, which runs in ``folder`` and finds its broker at ``servers``.

    Raises CalledProcessError when the command fails.
    """
    screen = pyte.Screen(WIDTH, HEIGHT)
    stream = pyte.ByteStream(screen)
    ours, theirs = pty.openpty()
    arguments = shlex.split(command.replace(TO_THE_BROKER, servers))
    terminal = {"COLUMNS": str(WIDTH), "LINES": str(HEIGHT), "TERM": "xterm-256color"}
    spark = {"SPARK_CONF_DIR": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}
    with subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env={**os.environ, **terminal, **spark},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        for output in _read(ours):
            stream.feed(output)
    if process.returncode:
        print("\n".join(screen.display), file=sys.stderr)
        raise subprocess.CalledProcessError(process.returncode, arguments)
    return screen


def _read(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            output = os.read(terminal, 65536)
        except OSError:  # Linux says so when the last program has closed its side
            output = b""
        if not output:
            os.close(terminal)
            return
        yield output


def lines_of(screen: pyte.Screen) -> list[Text]:
    """The lines with their colours, without empty ones at the end."""
    lines: list[Text] = []
    for row in range(screen.lines):
        line = Text()
        for column in range(screen.columns):
            char = screen.buffer[row][column]
            style = Style(color=_colour(char.fg), bgcolor=_colour(char.bg), bold=char.bold)
            line.append(char.data, style)
        line.rstrip()
        lines.append(line)
    while lines and not lines[-1].plain:
        lines.pop()
    return lines


def _colour(name: str) -> str | None:
    if len(name) == len("rrggbb") and all(digit in "0123456789abcdef" for digit in name):
        return f"#{name}"
    return COLOURS.get(name, name.replace("bright", "bright_"))


def drawn(name: str, lines: list[Text], servers: str) -> str:
    """An SVG without anything from elsewhere: what was typed, and the lines."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {COMMANDS[name]}", Style(bold=True)))
    for line in lines:
        console.print(line, soft_wrap=True)
    said = " ".join(line.plain for line in lines if line.plain)
    made = console.export_svg(title=f"kprod {name}", code_format=FORMAT, unique_id=name)
    title = f"The screen after {COMMANDS[name]}: {said}".replace("&", "&amp;").replace("<", "&lt;")
    return made.replace("TITLE", title).replace(servers, TO_THE_BROKER)


@contextmanager
def a_broker_with_flights() -> Iterator[tuple[Path, str]]:
    """A folder with the flights, where Spark says little, and the address of an empty broker."""
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedBroker(topics={"flights": PARTITIONS}) as broker,
    ):
        Flights().write_csv(Path(folder) / FLIGHTS)
        (Path(folder) / "log4j2.properties").write_text("rootLogger.level = off\n")
        yield Path(folder), broker.bootstrap_servers


def main() -> None:
    """Run and draw them all."""
    PLACE.mkdir(exist_ok=True)
    for name, command in COMMANDS.items():
        with a_broker_with_flights() as (folder, servers):
            lines = lines_of(recorded(command, folder, servers))
            (PLACE / f"{name}.svg").write_text(drawn(name, lines, servers))
        print(f"docs/terminals/{name}.svg: {len(lines)} lines")


if __name__ == "__main__":
    main()
