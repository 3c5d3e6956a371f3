"""A key of TWIN.yaml, and how it follows from the field that holds its value and from what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from decimal import Decimal
from functools import lru_cache
from lazy_dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from replay.numbers.argument_ranges import Within
from sim import InvalidConfig

Kind = Literal["integer", "boolean", "fraction", "number", "numbers", "choice", "text", "decimal", "mapping"]
Range = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key: its path, the values it may have, its default, and its meaning."""

    path: str
    kind: Kind
    default: str
    meaning: str
    choices: tuple[str, ...] = ()
    least: int = 0
    within: Range | None = None
    unit: str = ""

    @property
    def name(self) -> str:
        """The last part of the path, as its section has it."""
        return self.path.rpartition(".")[2]

    @property
    def is_above_zero(self) -> bool:
        """Whether 0 is none of its numbers."""
        return self.within is not None and self.within[0] > 0

    @property
    def wanted(self) -> str:
        """The numbers that are allowed, as messages give them."""
        if self.kind == "fraction":
            return "a fraction in (0, 1]" if self.is_above_zero else "a fraction in [0, 1)"
        unit = f" of {self.unit}" if self.unit else ""
        return f"a number{unit} {'>' if self.is_above_zero else '>='} 0"

    @property
    def expected(self) -> str:
        """The allowed values, as the reference page gives them."""
        if self.choices:
            return " or ".join(f"`{choice}`" for choice in self.choices)
        return f"{self.kind}, at least {self.least}" if self.kind == "integer" else self.kind


@dataclass(frozen=True, slots=True)
class KeyText:
    """What is said of a key, where that is more than its meaning.

    ``default``, ``kind``, ``choices``, ``least``: where they do not follow from the field that holds the value, or no
    field does. ``within``: the least above 0 and the most, in the key's unit; None: no limit but the field's own.
    """

    meaning: str
    default: str | None = None
    kind: Kind | None = None
    choices: tuple[str, ...] = ()
    least: int | None = None
    within: Range | None = None


Sayings = dict[str, str | KeyText]
"""Meanings by the keys' paths below their section, in the order of the reference page."""
Holders = Mapping[str, tuple[type[Any], ...]]
"""The dataclasses whose fields hold a section's values, by its path; a section with policies has one for each."""

_KINDS: Mapping[object, Kind] = {
    **{int: "integer", bool: "boolean", float: "number", str: "text"},
    **{tuple[float, ...]: "numbers", tuple[float, float]: "numbers"},
}
_SOME: Mapping[object, object] = {int: 1, float: 1.0, str: "a"}
"""A value of each kind that any setting takes."""


def said_of(saying: str | KeyText) -> KeyText:
    """Return what is said of a key; a text is its meaning."""
    return KeyText(saying) if isinstance(saying, str) else saying


def ranges_of(section: str, sayings: Sayings) -> dict[str, Range]:
    """Return the ranges that are said, by the keys' whole paths."""
    said = {path_of(section, name): said_of(each) for name, each in sayings.items()}
    return {path: each.within for path, each in said.items() if each.within is not None}


def names_under(section: str, sayings: Sayings) -> list[str]:
    """Return the keys directly under a section; "" for those at the top of the sayings."""
    start = f"{section}." if section else ""
    names = [path.removeprefix(start) for path in sayings if path.startswith(start)]
    return [name for name in names if name and "." not in name]


def path_of(section: str, name: str) -> str:
    """Return a key's whole path; "" is the section itself."""
    return f"{section}.{name}" if name else section


def keys_of(section: str, sayings: Sayings, holders: Holders) -> tuple[Key, ...]:
    """Return the keys that are said, each as the field of its name has it."""
    return tuple(_key(section, name, said_of(each), holders) for name, each in sayings.items())


def keys_held_by(section: str, sayings: Sayings, cls: type[Any], path: str = "") -> tuple[Key, ...]:
    """Return the keys directly under a path of a section whose values are fields of a dataclass, in its order."""
    start = f"{path}." if path else ""
    names = [f"{start}{each.name}" for each in fields(cls)]
    return keys_of(section, {name: sayings[name] for name in names if name in sayings}, {path: (cls,)})


@lru_cache(maxsize=16)
def keys_of_fields(path: str, cls: Hashable) -> tuple[Key, ...]:
    """Return a key below a path for each field of a dataclass, of which nothing is said."""
    names: Sayings = {each.name: "" for each in fields(cls)}  # type: ignore[arg-type] # a dataclass
    return keys_of(path, names, {"": (cls,)})  # type: ignore[dict-item] # a dataclass


def holders_of(cls: type[Any], path: str = "") -> dict[str, tuple[type[Any], ...]]:
    """Return the dataclasses that hold the sections of a dataclass, those of sections in them included."""
    found: dict[str, tuple[type[Any], ...]] = {path: (cls,)}
    for name, hint in hints_of(cls).items():
        inner = classes_in(hint)
        for each in inner:
            found |= holders_of(each, f"{path}.{name}" if path else name)
        found |= {f"{path}.{name}" if path else name: inner} if inner else {}
    return found


def classes_in(hint: object) -> tuple[type[Any], ...]:
    """Return the dataclasses of a type: itself, a union's or a list's."""
    if isinstance(hint, type) and is_dataclass(hint):
        return (hint,)
    return tuple(each for part in get_args(hint) for each in classes_in(part))


def _key(section: str, name: str, said: KeyText, holders: Holders) -> Key:
    above, _, own = name.rpartition(".")
    holder, field = next(
        ((cls, each) for cls in holders.get(above, ()) for each in fields(cls) if each.name == own),
        (None, None),
    )
    hint = hints_of(holder)[own] if holder is not None else None
    bounds = next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Within)), None)
    of_type: Kind = "fraction" if bounds is not None and bounds.most <= 1 else kind_of(hint)
    kind = said.kind or ("choice" if said.choices else of_type)
    default = said.default if said.default is not None else (*said.choices, _default(field, bounds))[0]
    least = said.least
    if kind == "integer" and least is None and holder is not None:
        least = int(bounds.least) if bounds else least_of(holder, own)
    return Key(
        path=path_of(section, name),
        kind=kind,
        default=default,
        meaning=said.meaning,
        choices=said.choices or _choices(hint, default),
        least=least or 0,
        within=said.within or ((bounds.least, bounds.most) if bounds else None),
        unit=bounds.unit if bounds else "",
    )


def hints_of(cls: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the types of a dataclass' fields, what is None by default without that."""
    return _hints_of(cls)


@lru_cache(maxsize=64)
def _hints_of(cls: Hashable) -> Mapping[str, Any]:
    return {name: _given(hint) for name, hint in get_type_hints(cls, include_extras=True).items()}


def _given(hint: Any) -> Any:  # noqa: ANN401 - a type hint
    parts = [each for each in get_args(hint) if each is not NoneType]
    return parts[0] if get_origin(hint) in (UnionType, Union) and len(parts) == 1 else hint


def kind_of(hint: object) -> Kind:
    """Return the kind of a value by its type; what is no scalar is a mapping, or a list of them."""
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if isinstance(hint, UnionType) and Decimal in get_args(hint):
        return "decimal"
    return "choice" if get_origin(hint) is Literal else _KINDS.get(hint, "mapping")


def _choices(hint: object, default: str) -> tuple[str, ...]:
    """Return the values of a choice, the default first."""
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    return tuple(sorted(choices, key=lambda each: each != default))


def _default(field: Field[Any] | None, bounds: Within | None) -> str:
    """Return a field's default as the page gives it; of a quantity with a unit without a dot that says nothing."""
    if field is None or field.default_factory is not MISSING or field.default in (None, ()):
        return "none"
    if field.default is MISSING:
        return "required"
    if bounds is not None and bounds.unit:
        return f"{field.default:g}"
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)


def least_of(cls: type[Any], name: str) -> int:
    """Return the smallest whole number from 0 on that a field takes, by the check of its class."""
    hints = hints_of(cls)
    needed = {each.name for each in fields(cls) if each.default is each.default_factory is MISSING}
    others = {each: _SOME.get(hints[each]) for each in needed if each != name}
    return next(least for least in (0, 1, 2) if _takes(cls, {**others, name: least}, name))


def _takes(cls: type[Any], given: Mapping[str, object], name: str) -> bool:
    """Return whether a field takes its value; a fault of another one is none of it."""
    try:
        cls(**given)
    except InvalidConfig as error:
        return name not in str(error).partition(":")[0]
    return True
