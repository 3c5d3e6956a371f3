"""A latency model of the user's own: ``latency.model: FILE.py:Class`` or ``module:Class``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path

from replay.twin.own.own_code import CodeFault, load_module
from sim import InvalidConfig
from sim.latency import LatencyModel, PeakTimes, check_own_model
from traces import ConfigError
from traces.console.users_code import place_in_users_code, told
from traces.strict.section import Section

_PLACES: dict[type[LatencyModel], str] = {}
"""Where the classes that were loaded came from, so that a configuration can be written out again."""

_FUNCTION_PLACES: dict[Callable[..., object], str] = {}
"""Likewise the functions."""


def place_of(model: type[LatencyModel]) -> str:
    """Return the value of ``latency.model`` from which a class was loaded."""
    return _PLACES.get(model, f"{model.__module__}:{model.__qualname__}")


def place_of_function(function: Callable[..., object]) -> str:
    """Return the value of ``cluster.routing.policy`` from which a function was loaded."""
    return _FUNCTION_PLACES.get(function, f"{function.__module__}:{function.__qualname__}")


def load_function(place: str, *, folder: Path) -> Callable[..., int]:
    """Return the function that ``FILE.py:function`` or ``module:function`` names. Raises InvalidConfig."""
    module_name, _, attribute = place.rpartition(":")
    expected = "FILE.py:function in the folder of TWIN.yaml, or module:function"
    try:
        module = load_module(module_name, folder=folder)
    except CodeFault as fault:
        raise InvalidConfig(
            f"routing.policy: got {place} ({fault.got}), expected {fault.expected or expected}"
        ) from fault
    found: Callable[..., int] | None = getattr(module, attribute, None)
    if not callable(found):
        raise InvalidConfig(f"routing.policy: got {place}, expected {expected}")
    file = folder / module_name
    _FUNCTION_PLACES[found] = f"{file.resolve()}:{attribute}" if module_name.endswith(".py") else place
    return found


def load_class(latency: Section, *, folder: Path) -> type[LatencyModel]:
    """Return the class that ``latency.model`` points to. Raises ConfigError where there is none."""
    place = str(latency.text("model"))
    module_name, _, attribute = place.rpartition(":")
    try:
        module = load_module(module_name, folder=folder)
    except CodeFault as fault:
        expected = fault.expected or "FILE.py:Class in this file's folder, or module:Class"
        latency.fail("model", got=f"{place} ({fault.got})", expected=expected)
    found = getattr(module, attribute, None)
    if not (isinstance(found, type) and issubclass(found, LatencyModel) and is_dataclass(found)):
        latency.fail(
            "model", got=place, expected=f"a dataclass in {module_name} that derives from sim.LatencyModel"
        )
    file = folder / module_name
    _PLACES[found] = f"{file.resolve()}:{attribute}" if module_name.endswith(".py") else place
    return found


def build(cls: type[LatencyModel], latency: Section, *, peak: PeakTimes | None) -> LatencyModel:
    """Return the user's model with the coefficients given, numbers all, and ``peak`` where it has such a field."""
    names = [field.name for field in fields(cls)]
    section = latency.section("coefficients")
    given: dict[str, object] = {} if peak is None else {"peak": peak}
    if section is not None:
        section.refuse_unknown([name for name in names if name != "peak"])
        for name in section.nodes:
            value = section.decimal(name, expected="a number >= 0")
            given[name] = None if value is None else float(value)
    try:
        model = cls(**given)  # type: ignore[arg-type]  # what its fields are, its own checks say
    except (InvalidConfig, TypeError) as error:
        raise ConfigError(f"latency.coefficients: {error} ({latency.file}:{latency.line})") from error
    _check(model, latency)
    return model


def _check(model: LatencyModel, latency: Section) -> None:
    """Raise ConfigError where the model breaks its contract, or its code raises, with its own file and line."""
    try:
        check_own_model(model)
    except InvalidConfig as error:
        raise ConfigError(
            f"latency.model: {type(model).__name__}.{error} ({latency.file}:{latency.line})"
        ) from error
    except Exception as error:
        if place_in_users_code(error) is None:
            raise
        raise ConfigError(
            f"latency.model: {type(model).__name__} got {told(error)}, expected a model that answers "
            f"({latency.file}:{latency.line})"
        ) from error
