"""How often nodes fail and how long repairs take, by class of failure: the share of nodes that is up."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass
from pathlib import Path

import typer

from replay.fleet.inputs.fleet_ranges import FAILURES_PER_DAY, LEAST_UP, REPAIR_HOURS, in_range
from sim import InvalidConfig
from sim.fleet.availability import HOURS_PER_DAY, availability_of
from traces import ConfigError, parse_seconds
from traces.strict.section import Section, read_section
from traces.strict.whole_file import is_there

KEYS = ("name", "per_node_day", "repair")
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureClass:
    """One kind of failure: ``per_node_day`` of them on a node in a day, each out of service for ``repair_hours``."""

    name: str
    per_node_day: float
    repair_hours: float


def availability_with(classes: Sequence[FailureClass]) -> float:
    """Return the share of nodes that is up in the long run: 1 / (1 + Σ rate x repair). Raises ConfigError."""
    try:
        share = availability_of([(each.per_node_day, each.repair_hours) for each in classes])
    except InvalidConfig as error:
        raise ConfigError(f"failures: {error}") from error
    if share < LEAST_UP:
        raise ConfigError(f"failures: got {share:.2g} of the nodes up, expected at least {LEAST_UP:g}")
    return share


def parse_failures(text: str) -> tuple[FailureClass, ...]:
    """Return the classes of ``--failures``: RATE:REPAIR separated by commas, or a YAML file. Raises ConfigError."""
    path = Path(text)
    if path.suffix in (".yaml", ".yml", ".json") or is_there(path):
        root = read_section(path)
        root.refuse_unknown(("failures",))
        return read_failures(root)
    return tuple(_pair(part, number) for number, part in enumerate(text.split(","), start=1))


def _pair(text: str, number: int) -> FailureClass:
    rate, colon, repair = text.strip().partition(":")
    try:
        per_node_day, hours = float(rate), parse_seconds(repair) / SECONDS_PER_HOUR
    except (ValueError, typer.BadParameter):
        colon = ""
    if not colon or not repair.strip():
        raise ConfigError(
            f"--failures: got {text.strip()!r}, expected RATE:REPAIR (0.0065:48h: failures per node and day, time to "
            "repair), several with commas between, or a YAML file"
        )
    return _checked(f"class {number}", per_node_day, hours, where="--failures")


def _checked(name: str, per_node_day: float, repair_hours: float, *, where: str) -> FailureClass:
    """Return a class of failures, checked. Raises ConfigError."""
    in_range(f"{where}: failures per node and day", per_node_day, FAILURES_PER_DAY)
    in_range(f"{where}: hours to repair", repair_hours, REPAIR_HOURS)
    return FailureClass(name=name, per_node_day=per_node_day, repair_hours=repair_hours)


def read_failures(section: Section) -> tuple[FailureClass, ...]:
    """Return the classes under ``failures`` of a file, none where it has no such key. Raises ConfigError."""
    return tuple(_read(each, number) for number, each in enumerate(section.sections("failures"), start=1))


def _read(section: Section, number: int) -> FailureClass:
    section.refuse_unknown(KEYS)
    rate = section.decimal("per_node_day", expected="failures per node and day")
    repair = section.text("repair", expected="a time to repair (4h)")
    if rate is None or repair is None:
        missing = "per_node_day" if rate is None else "repair"
        section.fail(missing, got="nothing", expected="per_node_day and repair of every class of failures")
    try:
        hours = parse_seconds(repair) / SECONDS_PER_HOUR
    except typer.BadParameter:
        section.fail("repair", got=repr(repair), expected="a time to repair (4h, 30m)")
    where = f"{section.file}:{section.line}"
    return _checked(section.text("name") or f"class {number}", float(rate), hours, where=where)


def availability_note(classes: Sequence[FailureClass], *, of: str = "") -> str:
    """Return the availability with its formula; ``of``: a pool's name."""
    terms = " + ".join(f"{each.per_node_day:g} x {each.repair_hours / HOURS_PER_DAY:g} d" for each in classes)
    return (
        f"availability{of and f' of {of}'}: {availability_with(classes):.4%} of the nodes are up = 1 / (1 + {terms}), "
        "failures per node and day times days to repair; provisioned are engines / availability, rounded up"
    )
