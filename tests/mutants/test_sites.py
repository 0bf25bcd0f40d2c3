"""The mistakes that are made in a module are mistakes, and nothing else of it changes."""

from __future__ import annotations

import ast

from tests.mutants.sites import sites

TEXT = b'''"""A docstring."""

LIMIT: int = 5


def waits(now: float, due: "float | None") -> bool:
    if due is not None and now < due:
        note("\xc3\xa9", now + 1)
        return now - due
    _log.info("nothing of %d", 7)
    raise ValueError("too late")
'''


def test_each_mistake_is_python_and_changes_what_it_says() -> None:
    found = sites(TEXT)
    for site in found:
        mutated = site.applied(TEXT)
        assert ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(TEXT))
        assert TEXT[site.start : site.end].decode() == site.old
    assert {(site.line, site.new) for site in found} == {
        (3, "6"),
        (7, "(due is not None or now < due)"),
        (7, "(due is None)"),
        (7, "(now <= due)"),
        (8, "pass"),
        (8, "(now - 1)"),
        (8, "2"),
        (9, "return None"),
        (9, "(now + due)"),
        (11, "pass"),
    }
