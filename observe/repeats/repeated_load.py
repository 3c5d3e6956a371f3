"""A load that was observed several times, in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from lazy_dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from observe.repeats.beyond_chance import BeyondChance, differences
from observe.repeats.mean_of_runs import MeanOfRuns, mean_of_runs, noise_floor
from observe.repeats.run_figures import name_of
from traces import same_requests

if TYPE_CHECKING:
    from traces import RunSpread, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedLoad:
    """One load and the figures of its runs by the runs' names, in the order in which they were sent."""

    name: str
    runs: Mapping[str, Mapping[str, float]]

    def series(self) -> dict[str, list[float]]:
        """Return each figure of the runs that have it."""
        found: dict[str, list[float]] = {}
        for figures in self.runs.values():
            for figure, value in figures.items():
                found.setdefault(figure, []).append(value)
        return found

    def figures(self) -> dict[str, MeanOfRuns]:
        """Return the figures over the runs, by name."""
        return {name: mean_of_runs(values) for name, values in self.series().items()}

    def noise_floor(self) -> RunSpread | None:
        """Return what one run lies off by, as its header has it; None of one run."""
        return noise_floor(self.figures())


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedLoads:
    """Loads that were observed several times, of one server."""

    loads: tuple[RepeatedLoad, ...]

    def differences(self) -> list[BeyondChance]:
        """Return by what the repeats differ beyond chance."""
        return differences({each.name: each.series() for each in self.loads})

    def warnings(self) -> list[str]:
        """Return a line for each difference."""
        return [_told(each, self.loads) for each in self.differences()]

    def document(self) -> dict[str, object]:
        """Return by load the figures over the runs, and what differs beyond chance."""
        return {
            "loads": {
                load.name: {
                    "figures": {name: asdict(each) for name, each in load.figures().items()},
                    "runs": list(load.runs),
                }
                for load in self.loads
            },
            "differences": [asdict(each) for each in self.differences()],
            "warnings": self.warnings(),
        }


def grouped(traces: Mapping[str, Trace]) -> list[list[str]]:
    """Return the names of traces that sent the same requests, group by group, each in order of time."""
    groups: list[list[str]] = []
    for name, trace in traces.items():
        group = next((each for each in groups if _is_repeat(traces[each[0]], trace)), None)
        if group is None:
            groups.append([name])
        else:
            group.append(name)
    return [in_order(group, traces) for group in groups]


def _is_repeat(one: Trace, other: Trace) -> bool:
    return one.header.mode == other.header.mode and same_requests(one, other)


def in_order(group: Sequence[str], traces: Mapping[str, Trace]) -> list[str]:
    """Return the names of runs by when each began; as they are where a header does not say."""
    begins = [traces[name].header.start_unix_us for name in group]
    if any(each is None for each in begins):
        return list(group)
    return [name for _, name in sorted(zip(begins, group, strict=True))]


def load_name(group: Sequence[str]) -> str:
    """Return the name of the load whose runs these are."""
    load, run, _ = group[0].rpartition("-run-")
    if not run and group[0].startswith("run-"):
        return "run"
    return load or group[0]


def _told(each: BeyondChance, loads: Sequence[RepeatedLoad]) -> str:
    """Return a difference as a sentence that says what may have caused it, and what to do."""
    figure, size = name_of(each.figure), f"{abs(each.change):.1%} {'higher' if each.change > 0 else 'lower'}"
    chance = "fewer than 0.01%" if each.p < 1e-4 else f"{each.p:.2%}"
    sure = f"{chance} of sets of sound runs show as much"
    if each.kind == "drift":
        whose = "runs" if len(loads) == 1 else "blocks of runs"
        return (
            f"{figure} drifts over the {whose}, the last {size} than the first ({sure}): the server or its machine "
            "changes meanwhile, and the interval of the mean does not hold"
        )
    if each.kind == "first":
        whose = "first run is" if len(loads) == 1 else "runs of the first block are"
        return (
            f"the {whose} apart from the others, {figure} {size} ({sure}): warm up with --warmup, or leave "
            f"{'it' if len(loads) == 1 else 'them'} out"
        )
    load = next(load for load in loads if load.name == each.load)
    name = list(load.runs)[(each.run or 1) - 1]
    return f"{name} is apart from its repeats, {figure} {size} ({sure}): did the server have other work then?"
