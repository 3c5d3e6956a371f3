"""The runs of a list in blocks as repeated loads, and their noise floor in the traces' headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from observe.repeats.repeated_load import RepeatedLoad, RepeatedLoads, in_order, load_name
from traces import companion_file, read_header, sole_owner, write_header

if TYPE_CHECKING:
    from observe.campaign import Outcome
    from traces import Trace


def whole_runs(outcomes: Sequence[Outcome]) -> dict[str, Trace]:
    """Return the traces of a list by name, without one that was interrupted."""
    return {
        each.load.name: each.trace
        for each in outcomes
        if each.observation is None or not each.observation.interrupted
    }


def loads_of(traces: Mapping[str, Trace], figures: Mapping[str, Mapping[str, float]]) -> RepeatedLoads:
    """Return the loads of a list in blocks, each with its runs' figures in order of time."""
    groups: dict[str, list[str]] = {}
    for name in traces:
        groups.setdefault(load_name([name]), []).append(name)
    loads = [
        RepeatedLoad(name=load, runs={name: figures[name] for name in in_order(group, traces)})
        for load, group in sorted(groups.items(), key=lambda pair: _natural(pair[0]))
    ]
    return RepeatedLoads(loads=tuple(loads))


def _natural(name: str) -> tuple[str, float]:
    """Return a sweep's load by its number, so that 2 comes before 10."""
    what, _, value = name.rpartition("-")
    try:
        return what, float(value)
    except ValueError:
        return name, 0.0


def write_noise_floors(folder: Path, found: RepeatedLoads) -> None:
    """Write into the header of each run what one run of its load lies off by. Raises ConfigError where it cannot."""
    with sole_owner(folder):
        for load in found.loads:
            floor = load.noise_floor()
            for name in load.runs if floor is not None else ():
                header = read_header(companion_file(folder / name, ".yaml"))
                write_header(replace(header, noise_floor=floor), folder / name)
