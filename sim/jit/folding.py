"""A function with some attributes taken for constants: code that can never run is removed before compilation.

A compiler would have to read, type and optimise what settings forbid, and the machine code would ask about it at every
step. Here attributes that are known (``settings.has_images``: 0) are replaced in the function's source, expressions of
constants are worked out, and branches that cannot be taken are left out, with all that only they call. The lines keep
their numbers, so tracebacks and debuggers show the source as it stands.

What a function returns and what it changes stays the same as long as the attributes have these values.
"""

from __future__ import annotations
import __future__  # for the flag alone

import ast
import inspect
import operator
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

Number = int | float

_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_OPERATIONS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def folded(
    function: Callable[..., Any], known: Mapping[str, Number], replace: Callable[[Any], Any]
) -> Callable[..., Any]:
    """Return the function for attributes that have these values; ``replace``: what to take in place of a global.

    A function that has captured variables is returned as it is. Raises OSError where there is no source.
    """
    if not isinstance(function, FunctionType) or function.__closure__:
        return function
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        return function
    ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
    definition.decorator_list = []
    fold(definition, known, function.__globals__)
    code = _code_of(tree, function)
    names = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    globals_ = {**function.__globals__, **{name: replace(each) for name, each in names.items()}}
    made = FunctionType(code, globals_, function.__name__, function.__defaults__)
    made.__qualname__, made.__kwdefaults__ = function.__qualname__, function.__kwdefaults__
    return made


def fold(definition: ast.FunctionDef, known: Mapping[str, Number], globals_: Mapping[str, Any]) -> None:
    """Fold a function's body in place, until nothing changes any more."""
    before, now = "", ast.unparse(definition)
    while before != now:
        stores = _stores(definition)
        numbers = {
            name: each
            for name, each in globals_.items()
            if isinstance(each, (int, float)) and name not in stores
        }
        _Folder(known, {**numbers, **_constants(definition, stores)}).visit(definition)
        before, now = now, ast.unparse(definition)


def _code_of(tree: ast.Module, function: FunctionType) -> CodeType:
    """Return the code of the one function that a module defines; annotations are not looked at."""
    flags = __future__.annotations.compiler_flag
    module = compile(tree, function.__code__.co_filename, "exec", flags=flags, dont_inherit=True)
    (code,) = (each for each in module.co_consts if isinstance(each, CodeType))
    return code


def _stores(definition: ast.FunctionDef) -> Counter[str]:
    """Return how often each local name is given a value; parameters count as given."""
    names = [each.id for each in ast.walk(definition) if isinstance(each, ast.Name) and not _is_load(each)]
    taken = definition.args
    names += [each.arg for each in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)]
    return Counter(names)


def _constants(definition: ast.FunctionDef, stores: Counter[str]) -> dict[str, Number]:
    """Return the local names that are given a value once, a number."""
    found = {}
    for target, value in _assigned(definition):
        if not isinstance(target, ast.Name) or not isinstance(value, ast.Constant):
            continue
        if stores[target.id] == 1 and isinstance(value.value, (int, float)):
            found[target.id] = value.value
    return found


def _assigned(definition: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target of a function's assignments with what it is given; of ``a, b = c, d`` two."""
    for each in ast.walk(definition):
        if isinstance(each, ast.Assign):
            for target in each.targets:
                if isinstance(target, ast.Tuple) and isinstance(each.value, ast.Tuple):
                    yield from zip(target.elts, each.value.elts, strict=True)
                else:
                    yield target, each.value


def _is_load(node: ast.Name | ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Load)


def _is_known(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def _has_call(node: ast.expr) -> bool:
    return any(isinstance(each, ast.Call) for each in ast.walk(node))


class _Folder(ast.NodeTransformer):
    """Replace what is known, work out what follows, leave out what cannot happen."""

    def __init__(self, attributes: Mapping[str, Number], names: Mapping[str, Number]) -> None:
        self._attributes, self._names = attributes, names

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if _is_load(node) and node.attr in self._attributes:
            return _constant(self._attributes[node.attr], node)
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if _is_load(node) and node.id in self._names:
            return _constant(self._names[node.id], node)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.operand, ast.Constant) and isinstance(node.op, ast.Not):
            return _constant(not node.operand.value, node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        operation = _OPERATIONS.get(type(node.op))
        if operation and isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant):
            return _constant(operation(node.left.value, node.right.value), node)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        sides = [node.left, *node.comparators]
        if not all(map(_is_known, sides)) or not all(type(each) in _COMPARISONS for each in node.ops):
            return node
        values = [each.value for each in sides if isinstance(each, ast.Constant)]
        pairs = zip(node.ops, values[:-1], values[1:], strict=True)
        return _constant(all(_COMPARISONS[type(each)](left, right) for each, left, right in pairs), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        settles = isinstance(node.op, ast.Or)  # a value that is true settles "or", a false one "and"
        *before, last = node.values
        left: list[ast.expr] = []
        for each in before:
            if not isinstance(each, ast.Constant):
                left.append(each)
            elif bool(each.value) == settles:
                last = each
                break
        node.values = [*left, last]
        is_zero = not settles and _truth_of(node) is False
        return node if left and not is_zero else last

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        test = _truth_of(node.test)
        if test is None:
            return node
        return node.body if test else node.orelse

    def visit_If(self, node: ast.If) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        test = _truth_of(node.test)
        if test is None:
            return self._whole(node)
        return node.body if test else node.orelse

    def visit_While(self, node: ast.While) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        if _truth_of(node.test) is False:
            return node.orelse
        return self._whole(node)

    def visit_For(self, node: ast.For) -> ast.stmt:
        self.generic_visit(node)
        return self._whole(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        node.body = [each for each in map(self.visit, node.body) for each in _listed(each)]
        return self._whole(node)

    @staticmethod
    def _whole(node: Any) -> ast.stmt:
        """Return a block without what follows a statement that leaves it, and with something in it."""
        node.body = _reached(node.body) or [ast.copy_location(ast.Pass(), node)]
        if hasattr(node, "orelse"):
            node.orelse = _reached(node.orelse)
        return node  # type: ignore[no-any-return]


def _truth_of(test: ast.expr) -> bool | None:
    """Return whether a test holds, None where that is not known, or it calls something before."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.BoolOp) and isinstance(test.values[-1], ast.Constant):
        truth, settles = bool(test.values[-1].value), isinstance(test.op, ast.Or)
        return truth if truth == settles and not any(map(_has_call, test.values)) else None
    return None


def _listed(statements: ast.stmt | list[ast.stmt]) -> list[ast.stmt]:
    return statements if isinstance(statements, list) else [statements]


def _reached(statements: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements up to the first that leaves the block."""
    for place, each in enumerate(statements):
        if isinstance(each, _LEAVING):
            return statements[: place + 1]
    return statements


def _constant(value: Number, at: ast.expr) -> ast.Constant:
    return ast.copy_location(ast.Constant(value), at)
