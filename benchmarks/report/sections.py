"""The report's sections, each from one stored result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from benchmarks.acceptance.tables import FIGURES, figure
from benchmarks.report.chart import Bar, bar_chart

COMPARED = ("records_per_second", "cpu_us_per_record", "p50_us", "p99_us", "idle_cpu_percent")
NOT_DRAWN = "memory copy"
"""So fast that all other bars would be lines; it is in the table."""


def origin(result: Mapping[str, Any]) -> str:
    """Where a result comes from, in a line."""
    machine, commit = result["machine"], result["commit"]
    changed = ", with changes that were not committed" if commit["dirty"] else ""
    load = machine["load_average"][0]
    paths = "".join(f", {name} by {path}" for name, path in result.get("paths", {}).items())
    return (
        f"commit {commit['id'][:9]}{changed}; {result['started'][:10]}; {machine['cpu']},"
        f" {machine['cores']} cores, {machine['kernel']}, load average {load} at the start{paths}"
    )


def acceptance(result: Mapping[str, Any]) -> str:
    """The goals, and each comparison."""
    parts = [_head("Goals, rivals and the limits of the machine", result), _goals(result)]
    for comparison in result["figures"]["comparisons"].values():
        sides = comparison["sides"]
        figures = {side: measured["figures"] for side, measured in sides.items()}
        parts.append(f"<h3>{escape(comparison['question'])}</h3>")
        parts += [_chart(name, figures) for name in COMPARED]
        parts.append(_figures_table("side", figures))
        parts += [f"<p>Not measured: {escape(problem)}</p>" for problem in comparison["problems"]]
    return "\n".join(parts)


def pipeline(result: Mapping[str, Any]) -> str:
    """What was varied, one thing after the other."""
    parts = [_head("From send to acknowledgement", result)]
    for varied, figures in result["figures"]["cases"].items():
        parts.append(f"<h3>{escape(varied.capitalize())}</h3>")
        parts += [_chart(name, figures) for name in ("records_per_second", "cpu_us_per_record")]
        parts.append(_figures_table(varied, figures))
    return "\n".join(parts)


def kernels(result: Mapping[str, Any]) -> str:
    """Nanoseconds per operation."""
    figures = result["figures"]["kernels"]
    rows = [
        [name, *(figure(one[part]) for part in ("median", "min", "q1", "q3", "max"))]
        for name, one in figures.items()
    ]
    head = ["operation", "median ns", "min", "q1", "q3", "max"]
    return _head("Operations, in time", result) + table(head, rows)


def instructions(result: Mapping[str, Any]) -> str:
    """Instructions per operation."""
    counted = result["figures"]["instructions_per_operation"]
    rows = [[name, figure(value)] for name, value in counted.items()]
    head = ["operation", "instructions"]
    return _head("Compiled operations, in instructions", result) + table(head, rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table; the first column is text, the others are numbers."""
    heads = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = [
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows
    ]
    return f"<table><thead><tr>{heads}</tr></thead><tbody>\n{''.join(lines)}</tbody></table>\n"


def _head(title: str, result: Mapping[str, Any]) -> str:
    told = f"{result['question']} Settings: {settings(result)}."
    return (
        f"<h2>{escape(title)}</h2>\n<p>{escape(told)}<br><code>{escape(result['command'])}</code>"
        f"<br>{escape(origin(result))}</p>\n"
    )


def settings(result: Mapping[str, Any]) -> str:
    """What the run was told, as text."""
    return ", ".join(f"{name} {value}" for name, value in result["settings"].items())


def _goals(result: Mapping[str, Any]) -> str:
    rows = []
    for goal in result["figures"]["goals"]:
        measured, unit = goal["measured"], goal["unit"]
        cells = ["not measured", ""]
        if measured is not None:
            reach = f"{figure(measured['min'])} to {figure(measured['max'])}"
            cells = [f"{figure(measured['median'])} {unit}", reach]
        verdict = "yes" if goal["reached"] else "no"
        wanted = f"{goal['bound']} {figure(goal['limit'])} {unit}"
        rows.append([f"{goal['number']}. {goal['goal']}", wanted, *cells, verdict])
    return table(["goal", "wanted", "measured", "min to max", "reached"], rows)


def _chart(name: str, figures: Mapping[str, Mapping[str, Any]]) -> str:
    bars = [
        Bar(label, one[name])
        for label, one in figures.items()
        if name in one and not label.startswith(NOT_DRAWN)
    ]
    return bar_chart(FIGURES[name], "median, min and max", bars)


def _figures_table(what: str, figures: Mapping[str, Mapping[str, Any]]) -> str:
    shown = [name for name in FIGURES if any(name in one for one in figures.values())]
    rows = [[label, *(_cell(one.get(name)) for name in shown)] for label, one in figures.items()]
    return table([what, *(FIGURES[name] for name in shown)], rows)


def _cell(spread: Mapping[str, Any] | None) -> str:
    if spread is None:
        return "-"
    return f"{figure(spread['median'])} ({figure(spread['min'])} to {figure(spread['max'])})"
