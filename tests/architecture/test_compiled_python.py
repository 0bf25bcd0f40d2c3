"""No compiled module has what crashes where there is no memory for a traceback (decision 0016).

Cython keeps the exception for ``__exit__`` when the body of a ``with`` raises, and for the rest of
an ``except`` that is left early; without memory for its traceback that is NULL, and used.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.sources import ROOT, files

LEAVES_EARLY = (ast.Return, ast.Break, ast.Continue)


def test_no_compiled_module_has_what_needs_a_traceback() -> None:
    modules = [path.with_suffix(".py") for path in files(".pxd", folders=("kprod",))]
    assert len(modules) > 3
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in modules
        for line in needing_a_traceback(path.read_text())
    ]
    assert not found, "write try with finally, and leave an except clause by its end"


def needing_a_traceback(source: str) -> Iterator[int]:
    """The lines of a module with a ``with``, or with what leaves an ``except`` clause early."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.With):
            yield node.lineno
        elif isinstance(node, ast.ExceptHandler):
            yield from (inner.lineno for inner in ast.walk(node) if isinstance(inner, LEAVES_EARLY))


def test_the_search_sees_what_it_should() -> None:
    source = """
def take(lock):
    with lock:
        pass
    try:
        pass
    except ValueError:
        return 1
    for _ in ():
        try:
            pass
        except ValueError:
            continue
    try:
        pass
    except ValueError as error:
        found = error
    finally:
        lock.release()
    return found
"""
    assert list(needing_a_traceback(source)) == [3, 8, 13]
