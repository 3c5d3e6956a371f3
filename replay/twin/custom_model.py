"""A latency model of the user's own: ``latency.model: FILE.py:Class`` or ``module:Class``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from sim.config import InvalidConfig
from sim.latency import LatencyModel, PeakTimes
from traces.errors import ConfigError
from traces.strict.section import Section

_PLACES: dict[type[LatencyModel], str] = {}
"""Where the classes that were loaded came from, so that a configuration can be written out again."""

_FUNCTION_PLACES: dict[Callable[..., object], str] = {}
"""Likewise the functions."""


def place_of(model: type[LatencyModel]) -> str:
    """Return what ``latency.model`` said for a class that was loaded from there."""
    return _PLACES.get(model, f"{model.__module__}:{model.__qualname__}")


def place_of_function(function: Callable[..., object]) -> str:
    """Return what ``cluster.routing.policy`` said for a function that was loaded from there."""
    return _FUNCTION_PLACES.get(function, f"{function.__module__}:{function.__qualname__}")


def load_function(place: str, *, folder: Path) -> Callable[..., int]:
    """Return the function that ``FILE.py:function`` or ``module:function`` names. Raises InvalidConfig."""
    module_name, _, attribute = place.rpartition(":")
    expected = "FILE.py:function in the folder of TWIN.yaml, or module:function"
    try:
        module = _module_of(module_name, folder=folder)
    except ImportError as error:
        raise InvalidConfig(f"routing.policy: got {place} ({error}), expected {expected}") from error
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
        module = _module_of(module_name, folder=folder)
    except ImportError as error:
        latency.fail(
            "model", got=f"{place} ({error})", expected="FILE.py:Class in this file's folder, or module:Class"
        )
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
        return cls(**given)  # type: ignore[arg-type]  # what its fields are, its own checks say
    except (InvalidConfig, TypeError) as error:
        raise ConfigError(f"latency.coefficients: {error} ({latency.file}:{latency.line})") from error


def _module_of(name: str, *, folder: Path) -> ModuleType:
    if not name.endswith(".py"):
        return import_module(name)
    file = folder / name
    spec = spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise ImportError(f"no file {file}")
    module = module_from_spec(spec)
    sys.modules[file.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
