"""Regular expressions and globs as trees: the forms that checkpoints use, every other one refused.

What is read means what Python's ``re`` means by it, for texts on one line. Backreferences, lookbehind and flags are not
read: no checkpoint is known to have them.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass, replace
from typing import Final, Literal

Where = Literal["^", "$", "b", "B"]
MOST_GROUPS: Final = 50
"""Groups in groups."""
MOST_COUNTED: Final = 1000
"""The largest m or n in ``{m,n}``."""
SPECIAL: Final = "\\.^$*+?{}[]()|"
_CLASSES: Final = "dDwWsS"


class NotRead(ValueError):  # noqa: N818 - what it says is the reason
    """An expression that has another form than those that are read."""


@dataclass(frozen=True, slots=True)
class Characters:
    """One character: of some, of ranges or of classes (``d``, ``W``), or any that is none of these."""

    some: frozenset[str] = frozenset()
    ranges: tuple[tuple[str, str], ...] = ()
    classes: str = ""
    is_negated: bool = False

    def have(self, character: str) -> bool:
        """Return whether a character is meant."""
        is_in = (
            character in self.some
            or any(low <= character <= high for low, high in self.ranges)
            or any(_in_class(name, character) for name in self.classes)
        )
        return is_in != self.is_negated


@dataclass(frozen=True, slots=True)
class Place:
    """A place between characters: the text's beginning or end, a word's edge or none."""

    where: Where


@dataclass(frozen=True, slots=True)
class InOrder:
    """One after the other."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """One of several."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """The same from ``least`` to ``most`` times; None: without end."""

    part: Tree
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Ahead:
    """What has to follow, or must not, without being taken: ``(?=…)`` and ``(?!…)``."""

    part: Tree
    is_negated: bool


Tree = Characters | Place | InOrder | Either | Repeated | Ahead

ANY: Final = Characters(frozenset("\n"), is_negated=True)


def is_word(character: str) -> bool:
    """Return whether a character is a letter, a digit or an underscore."""
    return character.isalnum() or character == "_"


def _in_class(name: str, character: str) -> bool:
    tests = {"d": str.isdecimal, "w": is_word, "s": str.isspace}
    return tests[name.lower()](character) != name.isupper()


def parse_expression(text: str) -> Tree:
    """Return an expression's tree. Raises NotRead."""
    parser = _Parser(text)
    tree = parser.either()
    if parser.at < len(text):
        raise NotRead("unbalanced parenthesis")
    return tree


def without_negations(tree: Tree) -> Tree:
    """Return a tree without what must not follow (``(?!…)``): it fits wherever the tree does, and more."""
    if isinstance(tree, Ahead):
        return InOrder(()) if tree.is_negated else replace(tree, part=without_negations(tree.part))
    if isinstance(tree, InOrder | Either):
        return replace(tree, parts=tuple(map(without_negations, tree.parts)))
    return replace(tree, part=without_negations(tree.part)) if isinstance(tree, Repeated) else tree


def parse_glob(text: str) -> Tree:
    """Return the tree of a name with ``*``, ``?`` and ``[…]``, which is all of a text."""
    parts: list[Tree] = []
    at = 0
    while at < len(text):
        character = text[at]
        closing = text.find("]", at + 2 + (text[at + 1 : at + 2] == "!")) if character == "[" else -1
        if character == "*":
            parts.append(Repeated(Characters(is_negated=True), 0, None))
        elif character == "?":
            parts.append(Characters(is_negated=True))
        elif closing > 0:
            inside = text[at + 1 : closing]
            is_negated = inside.startswith("!")
            parts.append(_of_glob(inside[1:] if is_negated else inside, is_negated=is_negated))
            at = closing
        else:
            parts.append(Characters(frozenset(character)))
        at += 1
    return InOrder((*parts, Place("$")))


def _of_glob(inside: str, *, is_negated: bool) -> Characters:
    some, ranges, at = set(), [], 0
    while at < len(inside):
        if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside):
            ranges.append((inside[at], inside[at + 2]))
            at += 3
        else:
            some.add(inside[at])
            at += 1
    return Characters(frozenset(some), tuple(ranges), is_negated=is_negated)


@dataclass(slots=True)
class _Parser:
    """Where the parser is in an expression, and in how many groups."""

    text: str
    at: int = 0
    depth: int = 0

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, expected: str = "") -> str:
        found = self.peek()
        if not found or (expected and found != expected):
            raise NotRead(f"nothing, or not {expected or 'a character'}, at character {self.at + 1}")
        self.at += 1
        return found

    def either(self) -> Tree:
        parts = [self.row()]
        while self.peek() == "|":
            self.at += 1
            parts.append(self.row())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def row(self) -> Tree:
        parts: list[Tree] = []
        while self.peek() not in ("", "|", ")"):
            parts.append(self.repeated(self.one()))
        return InOrder(tuple(parts))

    def one(self) -> Tree:
        character = self.take()
        if character == "(":
            return self.group()
        if character == "[":
            return self.bracket()
        if character == ".":
            return ANY
        if character in "^$":
            return Place("^" if character == "^" else "$")
        if character == "\\":
            return self.escaped()
        if character in "*+?":
            raise NotRead(f"nothing to repeat at character {self.at}")
        return Characters(frozenset(character))

    def group(self) -> Tree:
        self.depth += 1
        if self.depth > MOST_GROUPS:
            raise NotRead(f"more than {MOST_GROUPS} groups in groups")
        kind = ""
        if self.peek() == "?":
            self.at += 1
            kind = self.take()
            if kind == "P":
                self.take("<")
                kind = ":"
                while self.take() != ">":
                    pass
            if kind not in ":=!":
                raise NotRead(f"a group that begins with (?{kind}")
        inside = self.either()
        self.take(")")
        self.depth -= 1
        return Ahead(inside, kind == "!") if kind in ("=", "!") else inside

    def repeated(self, part: Tree) -> Tree:
        bounds = self.bounds()
        if bounds is None:
            return part
        least, most = bounds
        if isinstance(part, Place | Ahead):
            raise NotRead("a place that is repeated")
        if self.peek() == "?":  # as few as will do: whether a text matches is the same
            self.at += 1
        if self.peek() in ("*", "+", "?") or (self.peek() == "{" and _bounds(self.text, self.at) is not None):
            raise NotRead(f"a repeat of a repeat at character {self.at + 1}")
        return Repeated(part, least, most)

    def bounds(self) -> tuple[int, int | None] | None:
        character = self.peek()
        if character in ("*", "+", "?") and character:
            self.at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[character]
        found = _bounds(self.text, self.at) if character == "{" else None
        if found is None:
            return None
        least, most, self.at = found
        if least > MOST_COUNTED or (most is not None and (most > MOST_COUNTED or most < least)):
            raise NotRead(f"a count that is not from 0 to {MOST_COUNTED}")
        return least, most

    def escaped(self) -> Tree:
        character = self.take()
        if character in _CLASSES:
            return Characters(classes=character)
        if character in "bB":
            return Place("b" if character == "b" else "B")
        if character in "AZ":
            return Place("^" if character == "A" else "$")
        return Characters(frozenset(self.plain(character)))

    def plain(self, character: str) -> str:
        if character in "tnrfv":
            return {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}[character]
        if character.isascii() and character.isalnum():
            raise NotRead(f"an escape \\{character}")
        return character

    def bracket(self) -> Tree:
        is_negated = self.peek() == "^"
        self.at += is_negated
        some: set[str] = set()
        ranges: list[tuple[str, str]] = []
        classes = ""
        is_first = True
        while is_first or self.peek() != "]":
            is_first = False
            low = self.member()
            if len(low) == 2:
                classes += low[1]
                continue
            if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self.member()
                if len(high) == 2 or high < low:
                    raise NotRead(f"a range without order at character {self.at}")
                ranges.append((low, high))
            else:
                some.add(low)
        self.at += 1
        return Characters(frozenset(some), tuple(ranges), classes, is_negated)

    def member(self) -> str:
        """Return one character inside brackets, or a class with its backslash."""
        character = self.take()
        if character != "\\":
            return character
        character = self.take()
        if character in _CLASSES:
            return f"\\{character}"
        return "\b" if character == "b" else self.plain(character)


def _bounds(text: str, at: int) -> tuple[int, int | None, int] | None:
    """Return the bounds of ``{m,n}`` and where it ends; None where a brace is no more than one."""
    closing = text.find("}", at, at + 12)
    least, comma, most = text[at + 1 : max(closing, at + 1)].partition(",")
    is_number = all(part == "" or (part.isascii() and part.isdigit()) for part in (least, most))
    if closing < 0 or not is_number or not (least or comma):
        return None
    lowest = int(least or 0)
    return lowest, (int(most) if most else None) if comma else lowest, closing + 1
