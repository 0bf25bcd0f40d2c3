"""Figures in the documentation: written there from the stored results, and by nobody else.

A page has places for them::

    <!-- figures: goals -->
    ... replaced whenever the report is made ...
    <!-- end of figures -->

A name with a slash is the path of a plot without its suffix, as the page has to write it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.acceptance.tables import FIGURES, figure
from benchmarks.profiles.tables import HEAD, rows
from benchmarks.report.plots import image
from benchmarks.report.sections import origin, settings
from benchmarks.result_file import FOLDER, read_result
from benchmarks.rivals import comparisons as c

ROOT = Path(__file__).parents[2]
PAGES = tuple(
    ROOT / page for page in ("README.md", "docs/index.md", "docs/performance.md", "docs/profile.md")
)
RESULT, PROFILES = "acceptance", "profiles"
ENDURANCE, REVERSED = "endurance", "endurance-reversed"
COMMANDS = {
    ENDURANCE: "python -m benchmarks.endurance",
    REVERSED: "python -m benchmarks.endurance --reversed",
}
APART = {"tls": "--tls", "face": "--faces", "defaults": "--defaults"}
"""Results that are stored apart: by the last word of a comparison's name, the option for them."""
PLACE = re.compile(
    r"(?P<begin><!-- figures: (?P<name>[a-z0-9/-]+) -->\n).*?(?P<end><!-- end of figures -->)",
    re.DOTALL,
)
NOT_YET = "Not measured yet: `make acceptance` does it, and writes the figures here.\n"
LASTING = {
    "records_per_second": "records/s",
    "cpu_us_per_record": "CPU us/record",
    "requests_per_gigabyte": "requests/GB",
    "last_by_first": "rate of the last third by that of the first",
    "rss_mb_after_first_part": "RSS MB after a third",
    "rss_mb_at_the_end": "RSS MB at the end",
}
SUMMARY = (c.KPROD, c.CALLBACK, c.KAFKA_PYTHON, c.AIOKAFKA)


def quoted(text: str, folder: Path = FOLDER) -> str:
    """The page with every place filled. Raises KeyError for a place that has no figures."""
    try:
        result = read_result(RESULT, folder)
    except FileNotFoundError:
        return PLACE.sub(lambda place: place["begin"] + NOT_YET + place["end"], text)

    def filled(place: re.Match[str]) -> str:
        name = place["name"]
        if "/" in name:
            body = _plot(name, folder)
        elif name in _BY_THEMSELVES:
            body = _BY_THEMSELVES[name](folder)
        else:
            word = next((word for word in APART if word in name.split("-")), None)
            body = _body(name, result) if word is None else _apart(name, word, folder)
        return place["begin"] + body + place["end"]

    return PLACE.sub(filled, text)


def outside(text: str) -> str:
    """What a page says beside its places for figures."""
    return PLACE.sub("", text)


def _body(name: str, result: Mapping[str, Any]) -> str:
    made = _MAKERS[name](result) if name in _MAKERS else _comparison(name, result)
    return made + "\n"


def _apart(name: str, word: str, folder: Path) -> str:
    option = APART[word]
    stored = option.removeprefix("--")
    try:
        result = read_result(stored, folder)
    except FileNotFoundError:
        return NOT_YET.replace("make acceptance", f"python -m benchmarks.acceptance {option}")
    if name == f"{word}-origin":
        return _origin(result, stored) + "\n"
    maker = _MAKERS.get(name.removesuffix(f"-{word}"))
    return (_comparison(name, result) if maker is None else maker(result)) + "\n"


def _plot(path: str, folder: Path) -> str:
    try:
        return image(path, folder)
    except FileNotFoundError:
        return "Not drawn yet: `python -m benchmarks.report` does it when this was measured.\n"


def _profiles(folder: Path) -> str:
    try:
        result = read_result(PROFILES, folder)
    except FileNotFoundError:
        return NOT_YET.replace("make acceptance", "python -m benchmarks.profiles")
    lines = ["| " + " | ".join(HEAD) + " |", "|---" * len(HEAD) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows(result["figures"]["profiles"])]
    return "\n".join([*lines, "", _origin(result, PROFILES)]) + "\n"


def _endurance(folder: Path, name: str) -> str:
    """A line for each client and size of value: of several rounds the middle one."""
    try:
        result = read_result(name, folder)
    except FileNotFoundError:
        return NOT_YET.replace("make acceptance", COMMANDS[name])
    lines = ["| | " + " | ".join(LASTING.values()) + " |", "|---" * (len(LASTING) + 1) + "|"]
    for load, sides in result["figures"]["rounds"].items():
        for side, rounds in sides.items():
            cells = [figure(median(one[name] for one in rounds)) for name in LASTING]
            lines.append(f"| {load}, {side} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", _origin(result, name)]) + "\n"


def _goals(result: Mapping[str, Any]) -> str:
    lines = ["| | goal | wanted | measured | min to max | reached |", "|---|---|---|---|---|---|"]
    for goal in result["figures"]["goals"]:
        measured, unit = goal["measured"], goal["unit"]
        cells = "not measured | "
        if measured is not None:
            reach = f"{figure(measured['min'])} to {figure(measured['max'])}"
            cells = f"**{figure(measured['median'])} {unit}** | {reach}"
        verdict = "yes" if goal["reached"] else "no"
        wanted = f"{goal['bound']} {figure(goal['limit'])} {unit}"
        lines.append(f"| {goal['number']} | {goal['goal']} | {wanted} | {cells} | {verdict} |")
    return "\n".join(lines)


def _comparison(name: str, result: Mapping[str, Any]) -> str:
    sides = result["figures"]["comparisons"][name]["sides"]
    found = {side: one["figures"] for side, one in sides.items()}
    shown = [one for one in FIGURES if any(one in figures for figures in found.values())]
    lines = ["| | " + " | ".join(FIGURES[one] for one in shown) + " |"]
    lines.append("|---" * (len(shown) + 1) + "|")
    for side, figures in found.items():
        cells = [_cell(figures.get(one)) for one in shown]
        lines.append(f"| {side} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _summary(result: Mapping[str, Any]) -> str:
    """The clients side by side, for the README."""
    sides = result["figures"]["comparisons"]["keyed-defaults"]["sides"]
    lines = ["| keyed records of 100 B | records/s | CPU us/record |", "|---|---|---|"]
    for side in SUMMARY:
        figures = sides[side]["figures"]
        cells = [_median(figures.get(one)) for one in ("records_per_second", "cpu_us_per_record")]
        lines.append(f"| {side} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", _origin(result, "defaults")])


def _headline(result: Mapping[str, Any]) -> str:
    """The first point of the README: the rate of ``send``, and how many times another client's."""
    sides = result["figures"]["comparisons"]["keyed-defaults"]["sides"]
    ours, theirs = (
        sides[side]["figures"]["records_per_second"]["median"] for side in (c.KPROD, c.CALLBACK)
    )
    return (
        "- **Fast.** `send` is compiled. With default options and records of 100 B with a key, it"
        f" delivers {ours:,.0f} records/s, {ours / theirs:.1f} times as many as confluent-kafka:"
        " [How fast it is](#how-fast-it-is)."
    )


def _origin(result: Mapping[str, Any], stored: str = RESULT) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return (
        f"`{result['command']}` ({settings(result)}); {origin(result)}. {versions}."
        f" Stored in `benchmarks/results/{stored}.json`."
    )


def _cell(spread: Mapping[str, Any] | None) -> str:
    if spread is None:
        return "-"
    return f"**{figure(spread['median'])}** ({figure(spread['min'])} to {figure(spread['max'])})"


def _median(spread: Mapping[str, Any] | None) -> str:
    return "-" if spread is None else figure(spread["median"])


_BY_THEMSELVES: dict[str, Callable[[Path], str]] = {
    PROFILES: _profiles,
    ENDURANCE: partial(_endurance, name=ENDURANCE),
    REVERSED: partial(_endurance, name=REVERSED),
}
_MAKERS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "goals": _goals,
    "headline": _headline,
    "summary": _summary,
    "origin": _origin,
}
