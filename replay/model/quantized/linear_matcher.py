"""Whether a text begins as an expression says, in time that grows with the text's length and the expression's, no more.

A file of a stranger has the expressions, and a matcher that goes back over a text can take for ever (Cox, Regular
Expression Matching Can Be Simple And Fast, 2007). Here a text is read once, from its end: after each character the set
of places in the expression is kept from which the rest of the text fits. So what has to follow (``(?!…)``) is known
when it is asked for. Sets that came up before are not worked out again.
"""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass, field
from typing import Final, Literal

from replay.model.quantized.expression_parser import (
    Ahead,
    Characters,
    Either,
    InOrder,
    NotRead,
    Place,
    Repeated,
    Tree,
    is_word,
)

MOST_NODES: Final = 20_000
"""The largest size of expressions with their counted repeats written out."""
TOO_LARGE: Final = f"expressions of more than {MOST_NODES:,} characters with their repeats written out"
MOST_SETS: Final = 10_000
"""Sets of places that come up: a checkpoint's expressions have a hundred."""
Kind = Literal["character", "fork", "place", "ahead", "end"]


@dataclass(slots=True)
class Effort:
    """How much work the matchers of a file may still do, in nodes looked at; all of its expressions share it."""

    left: int

    def spend(self, nodes: int) -> None:
        """Take some work off. Raises NotRead where there is none left."""
        self.left -= nodes
        if self.left < 0:
            raise NotRead("expressions that take too long together")


@dataclass(slots=True)
class _Node:
    """A place in the expression. ``part``: the main one's is 0, that of each lookahead its own."""

    kind: Kind
    part: int
    following: int = -1
    other: int = -1
    characters: Characters | None = None
    where: str = ""
    is_negated: bool = False


@dataclass(slots=True)
class Matcher:
    """Expressions, ready to be compared with texts. ``effort``: what is left of the work allowed.

    A set of nodes has a number, its place in ``sets``; ``steps``: of each, the set before it by the character between.
    """

    effort: Effort
    nodes: list[_Node] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    start: int = 0
    has_edges: bool = False
    compiled: int = 0
    before: list[list[int]] = field(default_factory=list)
    edges: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    sets: list[int] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    steps: list[dict[str, int]] = field(default_factory=list)
    tails: dict[tuple[str, bool], int] = field(default_factory=dict)

    def match(self, text: str) -> bool:
        """Return whether the text, of one line, begins as an expression says, as ``re.match`` does.

        Raises NotRead where the work that a file's expressions may take is used up.
        """
        end = self._number(self._closed(0, text[-1:], ""))
        return self._is_whole(self._run(end, text, ""))

    def fits_any(self, heads: Sequence[str], middle: str, tail: str) -> bool:
        """Return whether ``head + middle + tail`` matches for one of the heads; neither middle nor tail is empty.

        What follows from the tail is worked out once. Raises NotRead as ``match`` does.
        """
        key = (tail, self.has_edges and is_word(middle[-1]))
        reached = self.tails.get(key)
        if reached is None:
            end = self._number(self._closed(0, tail[-1:], ""))
            reached = self.tails[key] = self._run(end, tail, middle[-1])
        reached = self._run(reached, middle[1:], middle[0])
        return any(self._is_whole(self._run(reached, head + middle[0], "")) for head in heads)

    def _is_whole(self, number: int) -> bool:
        return bool(self.sets[number] >> self.start & 1)

    def _run(self, number: int, text: str, behind: str) -> int:
        """Return the set at the beginning of a piece of text; ``behind``: the character before it, "" without one."""
        self.effort.spend(len(text) + 1)
        for at in range(len(text) - 1, -1, -1):
            character = text[at]
            last = text[at - 1] if at else behind
            key = (
                character
                if last and not self.has_edges
                else f"{character}{'' if not last else is_word(last)}^"
            )
            step = self.steps[number].get(key)
            if step is None:
                step = self._number(
                    self._closed(self._stepped(self.sets[number], character), last, character)
                )
                self.steps[number][key] = step
            number = step
        return number

    def _number(self, found: int) -> int:
        """Return the number of a set."""
        number = self.numbers.get(found)
        if number is None:
            number = self.numbers[found] = len(self.sets)
            if number >= MOST_SETS:
                raise NotRead("expressions that have too many ways to match")
            self.sets.append(found)
            self.steps.append({})
        return number

    def _stepped(self, reached: int, character: str) -> int:
        """Return the nodes that take a character and go on where the rest fits."""
        edges = self.edges.get(character)
        if edges is None:
            edges = self.edges[character] = [
                (number, node.following)
                for number, node in enumerate(self.nodes)
                if node.characters is not None and node.characters.have(character)
            ]
            self.effort.spend(len(self.nodes))
        self.effort.spend(len(edges))
        found = 0
        for number, following in edges:
            if reached >> following & 1:
                found |= 1 << number
        return found

    def _closed(self, reached: int, last: str, following: str) -> int:
        """Return a set with all nodes that come to one of it without a character: of inner lookaheads first.

        ``last`` and ``following``: the characters around the place, "" at the text's ends.
        """
        waiting: list[list[int]] = [[end] for end in self.ends]
        for number in _bits(reached):
            waiting[self.nodes[number].part].append(number)
        for part in range(len(self.ends) - 1, -1, -1):
            stack = waiting[part]
            self.effort.spend(len(stack))
            for number in stack:
                reached |= 1 << number
            while stack:
                for number in self.before[stack.pop()]:
                    self.effort.spend(1)
                    is_new = not reached >> number & 1
                    if is_new and _holds(self.nodes[number], reached, last, following):
                        reached |= 1 << number
                        stack.append(number)
        return reached


def _holds(node: _Node, reached: int, last: str, following: str) -> bool:
    """Return whether a node can be passed at a place between two characters."""
    if node.kind == "ahead":
        return bool(reached >> node.other & 1) != node.is_negated
    if node.kind != "place":
        return True
    if node.where in "^$":
        return not (last if node.where == "^" else following)
    is_edge = (last != "" and is_word(last)) != (following != "" and is_word(following))
    return is_edge == (node.where == "b")


def _bits(number: int) -> list[int]:
    found = []
    while number:
        lowest = number & -number
        found.append(lowest.bit_length() - 1)
        number ^= lowest
    return found


def matcher_of(trees: Sequence[Tree], *, effort: Effort) -> Matcher:
    """Return what matches where one of some expressions does. Raises NotRead where they are too large."""
    found = Matcher(effort)
    found.start = _part(found, Either(tuple(trees)))
    found.before = [[] for _ in found.nodes]
    for number, node in enumerate(found.nodes):
        if node.kind in ("fork", "place", "ahead"):
            found.before[node.following].append(number)
            if node.kind == "fork" and node.other >= 0:
                found.before[node.other].append(number)
    return found


def _part(into: Matcher, tree: Tree) -> int:
    """Add an expression of its own, with its end; return where it begins."""
    part = len(into.ends)
    into.ends.append(-1)
    into.ends[part] = _add(into, _Node("end", part))
    return _compiled(into, tree, into.ends[part], part)


def _add(into: Matcher, node: _Node) -> int:
    if len(into.nodes) >= MOST_NODES:
        raise NotRead(TOO_LARGE)
    into.effort.spend(1)
    into.nodes.append(node)
    return len(into.nodes) - 1


def _compiled(into: Matcher, tree: Tree, following: int, part: int) -> int:
    """Add a tree in front of a node; return where it begins."""
    into.compiled += 1
    if into.compiled > 4 * MOST_NODES:  # repeats of nothing add no node
        raise NotRead(TOO_LARGE)
    if isinstance(tree, Characters):
        return _add(into, _Node("character", part, following, characters=tree))
    if isinstance(tree, Place):
        into.has_edges = into.has_edges or tree.where in "bB"
        return _add(into, _Node("place", part, following, where=tree.where))
    if isinstance(tree, InOrder):
        for each in reversed(tree.parts):
            following = _compiled(into, each, following, part)
        return following
    if isinstance(tree, Either):
        first, *others = [_compiled(into, each, following, part) for each in tree.parts]
        for other in others:
            first = _add(into, _Node("fork", part, first, other))
        return first
    if isinstance(tree, Ahead):
        start = _part(into, tree.part)
        return _add(into, _Node("ahead", part, following, start, is_negated=tree.is_negated))
    return _repeated(into, tree, following, part)


def _repeated(into: Matcher, tree: Repeated, following: int, part: int) -> int:
    """Add a repeat: as often as it must be, and behind that as often as it may."""
    start = following
    if tree.most is None:
        start = _add(into, _Node("fork", part, following))
        into.nodes[start].other = _compiled(into, tree.part, start, part)
    else:
        for _ in range(tree.most - tree.least):
            start = _add(into, _Node("fork", part, following, _compiled(into, tree.part, start, part)))
    for _ in range(tree.least):
        start = _compiled(into, tree.part, start, part)
    return start
