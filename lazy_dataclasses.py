"""``dataclasses`` whose methods are not compiled when a class is made: a start makes hundreds, and uses few of them.

Python's own writes six methods of each class as text and compiles them, a fifth of a short command's time. Here
``__init__`` is written when it is first asked for, and the others are closures over the names of the fields. To a type
checker this is ``dataclasses.dataclass``, and so it is to whoever uses a class: fields, defaults, signatures,
``replace``, pickling, what is raised. Two things differ: a class without a docstring gets the names of its fields as
one, not their types; ``order``, ``unsafe_hash`` and ``InitVar`` are not known.
"""

from __future__ import annotations

from dataclasses import (
    MISSING,
    Field,
    FrozenInstanceError,
    asdict,
    astuple,
    field,
    fields,
    is_dataclass,
    replace,
)
from dataclasses import dataclass as _pythons_own
from operator import attrgetter
from reprlib import recursive_repr

TYPE_CHECKING = False  # without typing, whose import takes longer than this

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping
    from dataclasses import dataclass
    from typing import Any
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> object:
        """Return what ``dataclasses.dataclass`` returns for the same options, save ``order`` and ``unsafe_hash``."""
        return _made(cls, options) if cls is not None else lambda given: _made(given, options)


__all__ = [
    "MISSING",
    "Field",
    "asdict",
    "astuple",
    "dataclass",
    "field",
    "fields",
    "is_dataclass",
    "replace",
]
_WRITTEN_HERE = ("init", "repr", "eq", "frozen")


def _made(cls: type, options: dict[str, bool]) -> object:
    own, is_frozen = vars(cls), options.get("frozen", False)
    if cls.__doc__ is None:  # else Python's own asks for the signature, that is, for __init__
        cls.__doc__ = f"{cls.__name__}({', '.join(own.get('__annotations__', ()))})"
    # Below another frozen class Python's own insists that it makes this one frozen, too.
    is_below = any(hasattr(base, "__dataclass_params__") for base in cls.__mro__[1:])
    others = {name: wanted for name, wanted in options.items() if name not in _WRITTEN_HERE}
    made: Any = _pythons_own(init=False, repr=False, eq=False, frozen=is_frozen and is_below, **others)(cls)
    made.__dataclass_params__.frozen = is_frozen
    if is_frozen and not is_below:
        _freeze(made, own)
    if options.get("init", True) and "__init__" not in own:
        made.__init__ = _LaterInit(made)
    if options.get("repr", True) and "__repr__" not in own:
        made.__repr__ = _repr_of([each.name for each in fields(made) if each.repr])
    if options.get("eq", True):
        _compare(made, own, is_frozen=is_frozen)
    return made


class _NotGiven:
    """What stands in a signature for a value that a function makes; signatures show it as Python's own do."""

    def __repr__(self) -> str:
        return "<factory>"


_NOT_GIVEN = _NotGiven()


class _LaterInit:
    """The ``__init__`` of a class until it is first asked for, which is when it is written."""

    __slots__ = ("made",)

    def __init__(self, made: type) -> None:
        self.made: Any = made

    def __get__(self, instance: object, owner: type | None = None) -> object:
        init = _written_init(self.made)
        self.made.__init__ = init
        return init if instance is None else init.__get__(instance, owner)


def _written_init(made: Any) -> Any:  # noqa: ANN401 - a function of any class's fields
    """Return ``__init__`` of a class, with what it is given in the order of the fields, those by name alone last."""
    names: dict[str, object] = {
        "_set": object.__setattr__,
        "_not_given": _NOT_GIVEN,
        "__name__": made.__module__,
    }
    parameters: dict[bool, list[str]] = {False: [], True: []}
    body = []
    for each in fields(made):
        value, default = each.name, ""
        if each.default_factory is not MISSING:
            names[f"_make_{each.name}"] = each.default_factory
            value, default = f"_make_{each.name}()", "=_not_given"
            if each.init:
                value += f" if {each.name} is _not_given else {each.name}"
        elif each.default is not MISSING:
            names[f"_default_{each.name}"] = each.default
            default = f"=_default_{each.name}"
            value = each.name if each.init else default[1:]
        if each.init:
            parameters[each.kw_only is True].append(each.name + default)
        if each.init or default:
            is_frozen = made.__dataclass_params__.frozen
            body.append(f"_set(self, {each.name!r}, {value})" if is_frozen else f"self.{each.name} = {value}")
    if hasattr(made, "__post_init__"):
        body.append("self.__post_init__()")
    listed = ["self", *parameters[False], *(["*", *parameters[True]] if parameters[True] else [])]
    text = f"def __init__({', '.join(listed)}):\n " + "\n ".join(body or ["pass"])
    exec(compile(text, f"<__init__ of {made.__qualname__}>", "exec"), names)  # noqa: S102 - as Python's own does
    init: Any = names["__init__"]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    init.__annotations__ = {each.name: each.type for each in fields(made) if each.init} | {"return": None}
    return init


def _freeze(made: Any, own: Container[str]) -> None:  # noqa: ANN401 - any class
    """Refuse to set or delete what is a field, and anything of an object of the class itself."""
    names = {each.name for each in fields(made)}

    def __setattr__(self: object, name: str, value: object) -> None:  # noqa: N807 - as it is named in the class
        if type(self) is made or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(made, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:  # noqa: N807 - as above
        if type(self) is made or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(made, self).__delattr__(name)

    for method in (__setattr__, __delattr__):
        if method.__name__ in own:
            raise TypeError(f"cannot overwrite attribute {method.__name__} in class {made.__name__}")
        setattr(made, method.__name__, method)
    if "__slots__" in vars(made) and "__getstate__" not in own:
        made.__getstate__, made.__setstate__ = _state, _set_state


def _state(self: Any) -> list[object]:  # noqa: ANN401 - an object of any class
    """Return what pickle keeps of a frozen object with slots: its usual way would set attributes."""
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: list[object]) -> None:  # noqa: ANN401 - as above
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


def _repr_of(names: list[str]) -> Callable[[object], str]:
    @recursive_repr()
    def __repr__(self: object) -> str:  # noqa: N807 - as it is named in the class
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({values})"

    return __repr__


def _values_of(names: list[str]) -> Callable[[object], tuple[object, ...]]:
    """Return a function of an object that returns the values of these fields."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _compare(made: Any, own: Mapping[str, object], *, is_frozen: bool) -> None:  # noqa: ANN401 - any class
    """Make objects equal whose fields are, and hashable where the class is frozen."""
    # Python sets the hash of a class that has __eq__, and no more, to None.
    is_hash_free = "__hash__" not in own or (own["__hash__"] is None and "__eq__" in own)
    values = _values_of([each.name for each in fields(made) if each.compare])
    hashed = _values_of(
        [each.name for each in fields(made) if (each.compare if each.hash is None else each.hash)]
    )

    def __eq__(self: object, other: object) -> bool:  # noqa: N807 - as it is named in the class
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:  # noqa: N807 - as above
        return hash(hashed(self))

    if "__eq__" not in own:
        made.__eq__ = __eq__
    if is_hash_free:
        made.__hash__ = __hash__ if is_frozen else None
