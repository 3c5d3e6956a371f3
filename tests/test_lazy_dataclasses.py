"""Classes of lazy_dataclasses are what Python's own dataclasses are: the oracle is the standard library."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import itertools
import lazy_dataclasses
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, ClassVar

import pytest

from tests.test_imports import ARROWS, sources_of

Decorator = Callable[..., Callable[[type], Any]]
NAMES = ("frozen", "slots", "kw_only", "repr", "eq")
OPTIONS = [
    dict(zip(NAMES, each, strict=True)) for each in itertools.product((True, False), repeat=len(NAMES))
]
BOTH = (dataclasses, lazy_dataclasses)


def plain() -> type:
    class Plain:
        """Two numbers."""

        a: int
        b: float

    return Plain


def with_defaults() -> type:
    class WithDefaults:
        """All kinds of fields."""

        shared: ClassVar[int] = 9
        a: int
        b: list[int] = dataclasses.field(default_factory=list)
        c: str = dataclasses.field(default="c", repr=False)
        d: float = dataclasses.field(default=0.5, compare=False)
        e: int = dataclasses.field(default=7, init=False)
        f: tuple[int, ...] = dataclasses.field(default_factory=tuple, init=False)
        g: int = dataclasses.field(default=3, hash=False, kw_only=True)

    return WithDefaults


def with_own_methods() -> type:
    class WithOwnMethods:
        """Methods that a class brings stay."""

        a: int
        b: int = 2

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("a")

        def __repr__(self) -> str:
            return "own"

        def __hash__(self) -> int:
            return 5

        def __eq__(self, other: object) -> bool:
            return True

    return WithOwnMethods


def with_own_equality() -> type:
    class WithOwnEquality:  # noqa: PLW1641 - the decorator adds the hash
        """Without a hash of its own."""

        a: int
        b: int = 2

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and self.a == other.a

    return WithOwnEquality


def with_own_init() -> type:
    class WithOwnInit:
        """What makes an object stays, too."""

        a: int
        b: int

        def __init__(self, a: int, b: int) -> None:
            object.__setattr__(self, "a", a + b)
            object.__setattr__(self, "b", b)

    return WithOwnInit


def empty() -> type:
    class Empty:
        """No field."""

    return Empty


KINDS = (plain, with_defaults, with_own_methods, with_own_equality, with_own_init, empty)


def told(act: Callable[[], Any]) -> str:
    """Return what something gives: its text, or what is raised."""
    try:
        return repr(act())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def made_by(module: Any, kind: Callable[[], type], options: Mapping[str, bool]) -> Any:  # noqa: ANN401 - a class
    return module.dataclass(**options)(kind())


def words_of(cls: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - a class
    """Yield all that can be asked of a class and of its objects."""
    yield "signature", told(lambda: inspect.signature(cls))
    yield "fields", str([(each.name, each.type, each.init, each.repr) for each in dataclasses.fields(cls)])
    yield "match", str(getattr(cls, "__match_args__", None))
    yield "frozen", str(cls.__dataclass_params__.frozen)
    yield "slots", str(getattr(cls, "__slots__", None))
    yield (
        "init",
        f"{cls.__init__.__qualname__} {cls.__init__.__module__} {sorted(cls.__init__.__annotations__)}",
    )
    yield "hash of the class", str(cls.__hash__ is None)
    for given in ({}, {"a": 1}, {"a": 1, "b": [2]}, {"a": -1, "b": 2}, {"a": 1, "b": 2, "g": 4}, {"x": 1}):
        yield f"made of {given}", told(lambda given=given: vars_of(cls(**given))).replace("lazy_", "")
    yield "made of a and b by place", told(lambda: vars_of(cls(1, 2)))
    found = [each for each in (made(cls, a=1, b=2), made(cls, a=1, b=2), made(cls, a=2, b=2)) if each]
    for first, second in itertools.product(found, repeat=2):
        yield "equal", told(lambda first=first, second=second: first == second)
        if cls.__eq__ is not object.__eq__ and cls.__hash__ not in (None, object.__hash__):
            yield "hashes", told(lambda first=first, second=second: hash(first) == hash(second))
    yield "another kind", told(lambda: found[0] == 3)
    if cls.__repr__ is not object.__repr__:
        yield "text", told(lambda: found[0])
    yield "hashed", str(told(lambda: hash(found[0])).startswith("TypeError"))
    if vars_of(found[0]):  # what is no field of slots, Python 3.11 refuses by a fault of its own
        yield "set", told(lambda: setattr(found[0], "a", 3))
        yield "deleted", told(lambda: delattr(found[1], "b"))
    yield "replaced", told(lambda: vars_of(dataclasses.replace(found[0], a=8)))
    yield "as a dict", told(lambda: dataclasses.asdict(found[0]))
    yield "copied", told(lambda: vars_of(copy.copy(found[0])))
    yield "copied deeply", told(lambda: vars_of(copy.deepcopy(found[0])))


def made(cls: Any, **values: object) -> Any:  # noqa: ANN401 - an object of any class
    with suppress(TypeError):
        return cls(**values)
    with suppress(TypeError):
        return cls()


def vars_of(thing: object) -> dict[str, object]:
    return {each.name: getattr(thing, each.name) for each in dataclasses.fields(thing)}  # type: ignore[arg-type]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(n for n in NAMES if options[n]))
def test_a_class_and_its_objects_are_as_python_makes_them(options: dict[str, bool]) -> None:
    for kind in KINDS:
        expected, found = (dict(words_of(made_by(module, kind, options))) for module in BOTH)
        assert found == expected, kind.__name__


def below(module: Any, *, frozen: tuple[bool, bool]) -> Any:  # noqa: ANN401 - a class
    @module.dataclass(frozen=frozen[0], slots=True, kw_only=True)
    class Above:
        """One field."""

        a: int = 1

    @module.dataclass(frozen=frozen[1], slots=True, kw_only=True)
    class Below(Above):
        """Another one."""

        b: int = 2

    return Below


@pytest.mark.parametrize("frozen", list(itertools.product((True, False), repeat=2)))
def test_a_class_below_another_is_as_python_makes_it(frozen: tuple[bool, bool]) -> None:
    def words(module: Any) -> Any:  # noqa: ANN401 - what is told of a class
        try:
            return dict(words_of(below(module, frozen=frozen)))
        except TypeError as error:
            return str(error)

    expected, found = map(words, BOTH)
    assert found == expected


def test_python_s_own_class_can_stand_below_ours() -> None:
    @lazy_dataclasses.dataclass(frozen=True)
    class Ours:
        a: int = 1

    @dataclasses.dataclass(frozen=True)
    class Theirs(Ours):
        b: int = 2

    assert vars_of(Theirs(a=3)) == {"a": 3, "b": 2}
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'a'"):
        Theirs().a = 5  # type: ignore[misc] # what is refused


@lazy_dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Found by pickle."""

    a: int
    b: object = None


def test_frozen_objects_with_slots_are_pickled() -> None:
    thing = Kept(a=1, b=Kept(a=2))
    assert pickle.loads(pickle.dumps(thing)) == thing  # noqa: S301 - written here


def test_an_object_that_holds_itself_has_a_text() -> None:
    thing = Kept(a=1, b=[])
    thing.b.append(thing)  # type: ignore[attr-defined] # a list
    assert repr(thing) == "Kept(a=1, b=[...])"


def test_a_class_without_a_docstring_names_its_fields() -> None:
    @lazy_dataclasses.dataclass(kw_only=True)
    class Silent:
        a: int
        b: int = 1

    assert Silent.__doc__ == "Silent(a, b)"


def test_no_method_is_compiled_as_a_class_is_made() -> None:
    """Each took 60 µs, and there are six of hundreds of classes."""
    source = (
        "import builtins, lazy_dataclasses\n"
        "compiled, own = [], exec\n"
        "def counted(*given):\n    compiled.append(1)\n    own(*given)\n"
        "builtins.exec = counted\n"
        "@lazy_dataclasses.dataclass(frozen=True, slots=True, kw_only=True)\n"
        "class A:\n    a: int = 1\n    b: int = 2\n"
        "made = len(compiled)\n"
        "assert A() == A() and repr(A()) and hash(A())\n"
        "print(made, len(compiled))\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1"]


def test_every_dataclass_is_one_of_these() -> None:
    """A module that takes Python's own makes every start that loads it slower."""
    wrong = [
        name
        for room in ARROWS
        for name, source in sources_of(room).items()
        for node in ast.walk(ast.parse(source))
        if (isinstance(node, ast.ImportFrom) and node.module == "dataclasses")
        and any(alias.name == "dataclass" for alias in node.names)
    ]
    assert wrong == []
