"""Finds possible mutations of a module in its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, NamedTuple

PAIRS: list[tuple[type[ast.AST], type[ast.AST]]] = [
    *((ast.Eq, ast.NotEq), (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Is, ast.IsNot)),
    *((ast.In, ast.NotIn), (ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.FloorDiv)),
]
OTHER = dict(PAIRS) | {second: first for first, second in PAIRS}
UNTOUCHED = {"annotation", "returns", "decorator_list", "type_params"}
"""Fields of the tree that are not executed, or only at import."""
LOGS = ("debug", "info", "warning", "error", "exception")


class Site(NamedTuple):
    """One mutation: the source's bytes from ``start`` to ``end`` become ``new``."""

    line: int
    start: int
    end: int
    old: str
    new: str

    @property
    def lines(self) -> range:
        return range(self.line, self.line + self.old.count("\n") + 1)

    def applied(self, text: bytes) -> bytes:
        return text[: self.start] + self.new.encode() + text[self.end :]


def sites(text: bytes) -> list[Site]:
    lines = text.splitlines(keepends=True)
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line))
    found = []
    for node, new in _mutations(ast.parse(text)):
        start = begins[node.lineno - 1] + node.col_offset
        end = begins[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        old = text[start:end].decode()
        if new != old:
            found.append(Site(node.lineno, start, end, old, new))
    return found


def _mutations(tree: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.expr | ast.stmt) and not _is_idle(node):
            yield from ((node, new) for new in _instead_of(node))
        if not _is_idle(node):
            for field, inner in ast.iter_fields(node):
                if field not in UNTOUCHED:
                    inners = inner if isinstance(inner, list) else [inner]
                    pending += [one for one in inners if isinstance(one, ast.AST)]


def _is_idle(node: ast.AST) -> bool:
    """Whether mutations of it have no effect: docstrings, logs, messages, imports."""
    if isinstance(node, ast.Expr):
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            return call.func.attr in LOGS
        return isinstance(call, ast.Constant)
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom)


def _instead_of(node: ast.expr | ast.stmt) -> Iterator[str]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in OTHER:
            yield f"({ast.unparse(ast.Compare(node.left, [_other(op)], node.comparators))})"
        case ast.BoolOp():
            yield f"({ast.unparse(ast.BoolOp(_other(node.op), node.values))})"
        case ast.BinOp() if type(node.op) in OTHER and not _has_text(node):
            yield f"({ast.unparse(ast.BinOp(node.left, _other(node.op), node.right))})"
        case ast.UnaryOp(op=ast.Not()):
            yield f"({ast.unparse(node.operand)})"
        case ast.Constant(value=bool() as flag):
            yield str(not flag)
        case ast.Constant(value=int() as number):
            yield str(number + 1)
        case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
            yield "return None"
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.AugAssign() | ast.Continue():
            yield "pass"


def _other(op: ast.AST) -> Any:
    return OTHER[type(op)]()


def _has_text(node: ast.AST) -> bool:
    return any(
        isinstance(one, ast.JoinedStr) or isinstance(getattr(one, "value", None), str)
        for one in ast.walk(node)
    )
