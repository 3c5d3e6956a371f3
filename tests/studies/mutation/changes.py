"""The single changes that can be made to a module, each as its own source text.

Only what computes is changed: comparisons, arithmetic, numbers, ``and`` and ``or``, ``min`` and ``max``, a ``not``.
Annotations, docstrings, messages and what lies at a module's top level (tables, constants with a source) stay.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
NAMES = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "floor": "ceil",
    "ceil": "floor",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change: in which line, in which function, what became what, and the whole module with it."""

    line: int
    function: str
    before: str
    after: str
    source: str


def changes_of(source: str) -> list[Change]:
    """Return all single changes of a module, in the order of their lines."""
    tree = ast.parse(source)
    found = []
    for function, path in _places(tree):
        for made in _changed(_at(tree, path)):
            mutant = copy.deepcopy(tree)
            _put(mutant, path, made)
            before, after = ast.unparse(_at(tree, path)), ast.unparse(made)
            line = getattr(_at(tree, path), "lineno", 0)
            found.append(
                Change(
                    line=line,
                    function=function,
                    before=before,
                    after=after,
                    source=ast.unparse(ast.fix_missing_locations(mutant)),
                )
            )
    return sorted(found, key=lambda change: change.line)


Step = tuple[str, int | None]


def _places(tree: ast.Module) -> Iterator[tuple[str, tuple[Step, ...]]]:
    """Yield (function, way from the module to a node) of every node that computes within a function."""

    def walk(node: ast.AST, path: tuple[Step, ...], function: str) -> Iterator[tuple[str, tuple[Step, ...]]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if function and _changed(node):
            yield function, path
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params") or isinstance(
                node, ast.JoinedStr | ast.Raise | ast.Assert
            ):
                continue
            if isinstance(value, ast.AST):
                yield from walk(value, (*path, (name, None)), function)
            elif isinstance(value, list):
                for at, each in enumerate(value):
                    if isinstance(each, ast.AST):
                        yield from walk(each, (*path, (name, at)), function)

    yield from walk(tree, (), "")


def _changed(node: ast.AST) -> list[ast.AST]:
    """Return what a node may become; nothing of most."""
    made = copy.deepcopy(node)
    if isinstance(made, ast.Compare):
        return [_compared(made, at) for at, each in enumerate(made.ops) if type(each) in COMPARISONS]
    if isinstance(made, ast.AugAssign | ast.BinOp) and type(made.op) in ARITHMETIC and not _is_text(made):
        made.op = ARITHMETIC[type(made.op)]()
    elif isinstance(made, ast.BoolOp):
        made.op = ast.Or() if isinstance(made.op, ast.And) else ast.And()
    elif isinstance(made, ast.UnaryOp) and isinstance(made.op, ast.Not | ast.Invert):
        return [made.operand]
    elif isinstance(made, ast.Constant) and type(made.value) in (int, float):
        made.value = made.value + 1  # type: ignore[operator] # a number, as just seen
    elif isinstance(made, ast.Name) and made.id in NAMES and isinstance(made.ctx, ast.Load):
        made.id = NAMES[made.id]
    elif isinstance(made, ast.Attribute) and made.attr in NAMES and isinstance(made.ctx, ast.Load):
        made.attr = NAMES[made.attr]
    else:
        return []
    return [made]


def _compared(node: ast.Compare, at: int) -> ast.Compare:
    """Return a comparison with another operator at one place: ``a < b <= c`` has two."""
    made = copy.deepcopy(node)
    made.ops[at] = COMPARISONS[type(made.ops[at])]()
    return made


def _is_text(node: ast.BinOp | ast.AugAssign) -> bool:
    """Return whether an operation joins types or texts: changed, it would only end in an error."""
    parts = (node.target, node.value) if isinstance(node, ast.AugAssign) else (node.left, node.right)
    return any(
        isinstance(each, ast.JoinedStr | ast.List)
        or (isinstance(each, ast.Constant) and (isinstance(each.value, str) or each.value is None))
        for each in parts
    )


def _at(tree: ast.AST, path: tuple[Step, ...]) -> ast.AST:
    node: ast.AST = tree
    for name, at in path:
        value = getattr(node, name)
        node = value if at is None else value[at]
    return node


def _put(tree: ast.AST, path: tuple[Step, ...], made: ast.AST) -> None:
    *way, (name, at) = path
    parent = _at(tree, tuple(way))
    if at is None:
        setattr(parent, name, made)
    else:
        getattr(parent, name)[at] = made
