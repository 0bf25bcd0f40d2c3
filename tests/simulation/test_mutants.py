"""The simulation bites: each planted bug is noticed, and without it nothing is."""

from __future__ import annotations

import ast
from collections.abc import Callable
from multiprocessing.pool import AsyncResult
from pathlib import Path

import pytest

from tests.simulation.bites import not_noticed
from tests.simulation.mutants import MUTANTS

ROOT = Path(__file__).parents[2]
SWAPPED = sorted({path for mutant in MUTANTS for path, _ in mutant.swaps})


@pytest.mark.parametrize("path", SWAPPED)
def test_what_a_planted_bug_replaces_is_used_where_it_is_replaced(path: str) -> None:
    module, _, name = path.rpartition(".")
    source = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    assert name in _names_read(ast.parse(source.read_text("utf-8")))


def _names_read(tree: ast.AST) -> set[str]:
    """The names that code reads when it runs; those of annotations are none."""
    found: set[str] = set()
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.add(node.id)
        annotations = {"annotation", "returns"}
        for field, inner in ast.iter_fields(node):
            if field not in annotations:
                inners = inner if isinstance(inner, list) else [inner]
                pending += [one for one in inners if isinstance(one, ast.AST)]
    return found


@pytest.mark.parametrize("mutant_at", range(len(MUTANTS)), ids=[mutant.name for mutant in MUTANTS])
def test_a_planted_bug_is_noticed(
    mutant_at: int, catching: Callable[[int], AsyncResult[bool]]
) -> None:
    mutant = MUTANTS[mutant_at]
    hunt = f"Run python -m tests.simulation.bites --bug '{mutant.name}'"
    assert catching(mutant_at).get(), not_noticed(mutant.name, mutant.caught_by, hunt)
