"""Scaling, nodes, start-up, failures and retries of ``cluster``, read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from replay.twin.keys.cluster_settings import built, names_under, plain_section, translated
from traces.strict.section import Section

if TYPE_CHECKING:
    from sim.cluster import Autoscaler, Failures, NodePool, Retries, Startup

Entry = TypeVar("Entry")
Made = TypeVar("Made")


def read_startup(section: Section) -> Startup | None:
    """Return how long an instance takes to start, None if the section does not say."""
    from sim.cluster import Startup

    part = section.section("startup")
    return None if part is None else built(Startup, part)


def read_autoscaler(section: Section) -> Autoscaler | None:
    """Return the autoscaler, None if the number of instances is fixed."""
    from sim.cluster import Autoscaler, Size

    return _with_schedule(section, "autoscaler", Autoscaler, Size, required=("at_us", "instances"))


def read_node_pools(section: Section) -> tuple[NodePool, ...]:
    """Return the node pools that instances are placed on; none if GPUs are unlimited."""
    from sim.cluster import NodePool

    return _read_list(section, "node_pools", NodePool, required=("name",))


def read_failures(section: Section) -> Failures | None:
    """Return when instances fail, None where none does."""
    from sim.cluster import Failure, Failures

    return _with_schedule(section, "failures", Failures, Failure, required=("at_us", "instance"))


def _with_schedule(
    section: Section,
    name: str,
    whole: Callable[..., Made],
    entry: Callable[..., object],
    *,
    required: tuple[str, ...],
) -> Made | None:
    """Return what a section of ``cluster`` with a schedule says, None where there is none."""
    part = section.section(name)
    if part is None:
        return None
    part.refuse_unknown(names_under(f"cluster.{name}"))
    schedule = _read_list(part, "schedule", entry, required=required)
    return translated(lambda: whole(**{**plain_section(part), "schedule": schedule}), part)


def read_retries(section: Section) -> Retries | None:
    """Return when clients send a request again, None where they never do."""
    from sim.cluster import Retries

    part = section.section("retries")
    if part is None:
        return None
    part.refuse_unknown(names_under("cluster.retries"))
    settings: dict[str, Any] = plain_section(part)
    if "on" in part:
        settings["on"] = part.texts("on")
    return translated(lambda: Retries(**settings), part)


def _read_list(
    section: Section, key: str, cls: Callable[..., Entry], *, required: tuple[str, ...]
) -> tuple[Entry, ...]:
    """Return the entries of a list of mappings."""
    entries = []
    for each in section.sections(key):
        for name in required:
            if name not in each:
                each.fail(name, got="nothing", expected="it")
        entries.append(built(cls, each))
    return tuple(entries)
