"""A table made by ``vtwin predictor train``: written, read back strictly, and made into the latency model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from lazy_dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sim import EngineConfig, InvalidConfig
from sim.latency import ALPHAS, COLLECTIVE, OPTIONAL, TABLES, VIDURS, Floats, Profiled
from traces import ConfigError, write_text
from traces.strict.json_text import parse_value
from traces.strict.section import Section, read_section

SCHEMA_VERSION, WITH_OPTIONAL = 1, 2
"""The second is that of a file with tables that only some models have: an older vtwin refuses it."""
KIND = "profiled step times"

AFTER = "tokens_after_us"
"""The table that is missing in a file without jumps."""
COEFFICIENTS = (*ALPHAS, "scale", "step", *VIDURS)
"""What may be given beside a table: blackbox's alphas, a factor on its times, µs between steps, terms of Vidur's."""

LEARNED = Path(__file__).parents[1] / "model" / "physics.yaml"
"""Where coefficients stand that were learned from measured servers, also of what no profile of kernels has."""

LIMITS: Mapping[str, str] = {
    "tokens": "max_num_batched_tokens",
    "decode_sequences": "max_num_seqs",
    "keys": "max_model_len",
}
"""The engine limit with which each edge of the profile is compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTableFile:
    """A table's file: its tables (µs), the time between steps, and their origin.

    ``tables`` may lack ``tokens_after_us``, what steps of a little more than each knot take, and ``chunks_us``.
    ``domain``: up to which value each axis was measured; ``about``: the rest of the document, as it was written.
    """

    tables: Mapping[str, np.ndarray]
    step_us: float
    domain: Mapping[str, float]
    about: Mapping[str, object]


def write_step_tables(path: Path, tables: StepTableFile) -> None:
    """Write the file, atomically; times keep six digits. Raises ConfigError where it cannot be written."""
    document = {
        "schema_version": WITH_OPTIONAL if set(OPTIONAL) & set(tables.tables) else SCHEMA_VERSION,
        "kind": KIND,
        **tables.about,
        "domain": dict(tables.domain),
        "step_us": tables.step_us,
        "tables": {name: _rounded(table) for name, table in tables.tables.items()},
    }
    write_text(path, json.dumps(document, indent=None, separators=(",", ":")) + "\n", option="--output")


def read_step_tables(path: Path) -> StepTableFile:
    """Return a table's file. Raises ConfigError, one line, on a file that is not a table."""
    expected = "a table that `vtwin predictor train` wrote"
    try:
        document = parse_value(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}, expected {expected}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON ({error}), expected {expected}") from error
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ConfigError(f"{path}: kind: got {_shown(document)}, expected {expected}")
    got = document.get("schema_version")
    if got not in (SCHEMA_VERSION, WITH_OPTIONAL):
        raise ConfigError(f"{path}: schema_version: got {got!r}, expected {SCHEMA_VERSION}: train it again")
    try:
        may_lack = (AFTER, *OPTIONAL)
        names = [name for name in (*TABLES, AFTER) if name not in may_lack or name in document["tables"]]
        tables = {name: np.array(document["tables"][name], np.float64) for name in names}
        step_us = float(document["step_us"])
        domain = {str(name): float(value) for name, value in document["domain"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ConfigError(f"{path}: tables: {error}, expected numbers: train it again") from error
    about = {key: document[key] for key in document if key not in ("tables", "domain", "step_us")}
    return StepTableFile(tables=tables, step_us=step_us, domain=domain, about=about)


def model_of(file: StepTableFile, *, origin: str = "", **given: Decimal | float) -> Profiled:
    """Return the latency model of a table; ``given`` are coefficients beside it, ``step`` in place of the file's.

    Without ``alpha0`` and ``alpha1`` they are those of ``ways_in``. Raises InvalidConfig on a table or coefficient that
    is not a time, and on a term that the table does not support.
    """
    given = ways_in()[_class_of(file)] | given
    coefficients = {name: value if name in ALPHAS else float(value) for name, value in given.items()}
    coefficients.setdefault("step", file.step_us)
    try:
        runs, parts = _runs(file), _parts(file)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidConfig(f"components: {error}, expected numbers: train it again") from error
    _check_terms(file, coefficients, runs)
    return Profiled(
        **file.tables,  # type: ignore[arg-type]  # names and kinds were checked above
        **coefficients,  # type: ignore[arg-type]  # likewise
        tp=_number(file.about.get("tp"), 1),
        num_collectives=runs.get(COLLECTIVE, 0.0),
        parts=parts,
        origin=origin,
    )


@lru_cache(maxsize=1)
def ways_in() -> dict[str, dict[str, Decimal | float]]:
    """Return ``alpha0`` (µs) and ``alpha1`` (µs per prompt token) by class of model: ``dense``, ``MoE``.

    They are what a request takes before it joins the queue, learned from measured servers.
    """
    learned = read_section(LEARNED).section("ways_in")
    assert learned is not None  # noqa: S101 - a file of our own
    found: dict[str, dict[str, Decimal | float]] = {}
    for kind in learned.nodes:
        section = learned.section(kind)
        assert section is not None  # noqa: S101 - likewise
        values = {name: section.decimal(name, expected="a number >= 0") for name in section.nodes}
        found[kind] = {name: value for name, value in values.items() if value is not None}
    return found


def _class_of(file: StepTableFile) -> str:
    """Return the class of a table's model."""
    return "MoE" if any(str(each.get("name")).startswith("moe") for each in _components(file)) else "dense"


def _check_terms(
    file: StepTableFile, coefficients: Mapping[str, Decimal | float], runs: Mapping[str, float]
) -> None:
    """Raise InvalidConfig if a term of Vidur's is given that does not apply to the table's model."""
    is_grouped = file.about.get("grouped_queries")
    for name in VIDURS:
        if not coefficients.get(name):
            continue
        if name.startswith("nccl"):
            lacks = None if runs.get(COLLECTIVE) else "tp 1 has no all-reduce"
        elif is_grouped is None:
            lacks = "the table does not say whether its model has grouped queries: train it again"
        else:
            lacks = None if is_grouped else "its model has no grouped queries"
        if lacks:
            raise InvalidConfig(f"{name}: got {float(coefficients[name]):g}, expected 0: {lacks}")


def _components(file: StepTableFile) -> list[Mapping[str, Any]]:
    return [each for each in _list(file.about.get("components")) if isinstance(each, dict)]


def _runs(file: StepTableFile) -> dict[str, float]:
    """Return how often a step runs each component."""
    return {str(each.get("name")): float(each.get("runs_per_step", 0)) for each in _components(file)}


def _parts(file: StepTableFile) -> dict[str, tuple[str, Floats, Floats | None]]:
    """Return the components of the tables of one axis; nothing if a file does not give them on the knots."""
    found: dict[str, tuple[str, Floats, Floats | None]] = {}
    for each in _components(file):
        axis, times, after = each.get("axis"), each.get("time_us"), each.get("time_after_us")
        if axis in ("tokens", "sequences") and isinstance(times, list):
            whole, runs = file.tables[f"{axis}_us"], float(each["runs_per_step"])
            if len(times) == len(whole):
                is_after = isinstance(after, list) and len(after) == len(whole)
                found[str(each["name"])] = (
                    str(axis),
                    np.array(times, np.float64) * runs,
                    np.array(after, np.float64) * runs if is_after else None,
                )
    return found


def _number(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise


def read_profiled(section: Section, file: StepTableFile, *, origin: str) -> Profiled:
    """Return the model that a ``latency: {model: profiled, …}`` section makes of a table.

    ``origin``: what ``latency.table`` calls it. Raises ConfigError, one line.
    """
    coefficients = section.section("coefficients")
    given: dict[str, Decimal] = {}
    if coefficients is not None:
        coefficients.refuse_unknown(COEFFICIENTS)
        read = {name: coefficients.decimal(name, expected="a number >= 0") for name in COEFFICIENTS}
        given = {name: value for name, value in read.items() if value is not None}
    try:
        return model_of(file, origin=origin, **given)
    except InvalidConfig as error:
        raise ConfigError(f"{origin}: {error}") from error


def profile_notes(file: StepTableFile, engine: EngineConfig) -> tuple[str, ...]:
    """Return the notes for a run: substitutes in the table, and limits beyond the measured range."""
    beyond = [
        f"{limit} {getattr(engine, limit)} (measured to {file.domain[name]:g})"
        for name, limit in LIMITS.items()
        if name in file.domain and getattr(engine, limit) > file.domain[name]
    ]
    notes = [str(each) for each in _list(file.about.get("warnings"))]
    if beyond:
        notes.append(f"steps may leave the profile, where times grow with the work: {', '.join(beyond)}")
    return tuple(f"latency.table: {note}" for note in notes)


def _rounded(table: np.ndarray) -> object:
    """Return a table as nested lists, its numbers with six significant digits."""
    if table.ndim > 1:
        return [_rounded(row) for row in table]
    return [float(f"{value:.6g}") for value in table.tolist()]


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _shown(document: object) -> str:
    return repr(document.get("kind")) if isinstance(document, dict) else type(document).__name__
