"""The mutants of a module: each differs from the source in one small, typical mistake.

A mutant is made in the syntax tree, not in the text: the module's file stays as it is. What only documents, names a
type, formats a message or is there for speed alone (docstrings, annotations, decorators, the arguments of errors,
`__repr__`, `assert`, a few keywords) is left alone.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "turnout"
MUTATED = ("algorithm", "privacy")
"""The folders in which the mistakes are made."""

BOUNDARIES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
NEGATIONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
TWINS = dict(
    pair
    for one, other in (
        ("min", "max"),
        ("fmin", "fmax"),
        ("minimum", "maximum"),
        ("argmin", "argmax"),
        ("floor", "ceil"),
        ("any", "all"),
        ("at_least", "at_most"),
        ("ROUND_FLOOR", "ROUND_CEILING"),
        ("_DOWN", "_UP"),
    )
    for pair in ((one, other), (other, one))
)
LEFT_ALONE = {"dtype", "strict", "kind", "maxsize", "format", "method", "prec", "extra", "library"}
"""Keywords that are no part of what is computed, or whose every wrong value is an error at once."""


@dataclass(frozen=True)
class Mutant:
    """One mistake: where it is, and how to make it.

    Attributes:
        module: the file, from the package's folder on.
        place: the function or class, "" at the module's own level.
        line: in the source.
        change: "this -> that", which with module and place names the mutant in the list of equivalent ones.
        inside_function: whether it can be made by changing one function's code.
    """

    module: str
    place: str
    line: int
    change: str
    inside_function: bool
    make: Callable[[], ast.Module]

    @property
    def name(self) -> str:
        """What the mutant is known by; it does not hold the line, which moves."""
        return f"{self.module}:{self.place}: {self.change}"


def mutants(path: Path, root: Path) -> list[Mutant]:
    """All mutants of a file, in the order of its lines."""
    tree = ast.parse(path.read_text())
    seen: Counter[str] = Counter()
    found = []
    for place, inside, trail, node in _places(tree):
        for new in _changes(node, _node_at(tree, trail[:-1]), trail[-1]):
            change = f"{_text(node)} -> {_text(new)}"
            seen[f"{place}: {change}"] += 1
            times = seen[f"{place}: {change}"]
            label = change if times == 1 else f"{change} (number {times})"
            line = getattr(node, "lineno", 0)
            made = _maker(tree, trail, new)
            found.append(Mutant(path.relative_to(root).as_posix(), place, line, label, inside, made))
    return sorted(found, key=lambda mutant: mutant.line)


Trail = tuple[tuple[str, int | None], ...]


def _places(tree: ast.Module) -> Iterator[tuple[str, bool, Trail, ast.AST]]:
    """(name of the function or class, whether in a function, the way there, node) of all that may be changed."""
    waiting: list[tuple[tuple[str, ...], bool, Trail, ast.AST]] = [((), False, (), tree)]
    while waiting:
        names, inside, trail, node = waiting.pop()
        if trail:
            yield ".".join(names), inside, trail, node
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names = (*names, node.name)
        for field, index, child in reversed(list(_children(node))):  # so that they are met as they are read
            within = inside or (is_function and field == "body")
            waiting.append((names, within, (*trail, (field, index)), child))


def _children(node: ast.AST) -> Iterator[tuple[str, int | None, ast.AST]]:
    if _is_left_alone(node):
        return
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "decorator_list", "bases", "type_params"}:
            continue
        if isinstance(node, ast.Raise):
            continue
        if isinstance(value, list):
            yield from ((field, index, child) for index, child in enumerate(value) if isinstance(child, ast.AST))
        elif isinstance(value, ast.AST):
            yield field, None, value


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        overloads = any(isinstance(one, ast.Name) and one.id == "overload" for one in node.decorator_list)
        protocol = isinstance(node, ast.ClassDef) and any(_text(one) == "Protocol" for one in node.bases)
        return node.name in {"__repr__", "__dir__", "_repr_html_"} or overloads or protocol
    if isinstance(node, ast.keyword):
        return node.arg in LEFT_ALONE
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
    return isinstance(node, (ast.Assert, ast.Import, ast.ImportFrom, ast.JoinedStr))


def _changes(node: ast.AST, parent: ast.AST, step: tuple[str, int | None]) -> Iterator[ast.AST]:
    """What one mistake could make of a node."""
    if _is_left_alone(node):
        return
    match node:
        case ast.Compare():
            for table in (BOUNDARIES, NEGATIONS):
                for index, operator in enumerate(node.ops):
                    if type(operator) in table:
                        ops = [*node.ops[:index], table[type(operator)](), *node.ops[index + 1 :]]
                        yield ast.Compare(node.left, ops, node.comparators)
        case ast.BinOp() if type(node.op) in OPERATORS and not (_holds_text(node.left) or _holds_text(node.right)):
            yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
        case ast.AugAssign() if type(node.op) in OPERATORS and not _holds_text(node.value):
            yield ast.AugAssign(node.target, OPERATORS[type(node.op)](), node.value)
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            yield node.operand
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as number):
            yield from (ast.Constant(number + 1), ast.Constant(number - 1))
        case ast.Constant(value=float() as size):
            yield ast.Constant(2.0 * size if size else 1.0)
        case ast.Name(id=name) if name in TWINS:
            yield ast.Name(TWINS[name], node.ctx)
        case ast.Attribute(attr=name) if name in TWINS:
            yield ast.Attribute(node.value, TWINS[name], node.ctx)
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.Raise():
            yield ast.Pass()
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
    is_test = step[0] == "test" and isinstance(parent, (ast.If, ast.IfExp, ast.While))
    if is_test and not isinstance(node, (ast.Compare, ast.UnaryOp, ast.Constant)):
        yield ast.UnaryOp(ast.Not(), node)  # type: ignore[arg-type]


def _holds_text(node: ast.AST) -> bool:
    return isinstance(node, (ast.Dict, ast.JoinedStr, ast.List)) or (
        isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    )


def _maker(tree: ast.Module, trail: Trail, new: ast.AST) -> Callable[[], ast.Module]:
    def make() -> ast.Module:
        made = copy.deepcopy(tree)
        parent, (field, index) = _node_at(made, trail[:-1]), trail[-1]
        old = _node_at(made, trail)
        changed = ast.copy_location(copy.deepcopy(new), old)
        if index is None:
            setattr(parent, field, changed)
        else:
            getattr(parent, field)[index] = changed
        return ast.fix_missing_locations(made)

    return make


def _node_at(tree: ast.AST, trail: Trail) -> ast.AST:
    node = tree
    for field, index in trail:
        child = getattr(node, field)
        node = child if index is None else child[index]
    return node


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 100 else f"{text[:60]} ... {text[-35:]}"
