"""Loads observed several times, as a function; ``vtwin observe --repeat`` does the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from observe.campaign import run_loads
from observe.observation import observe_with
from observe.plan.loads import ListedLoad
from observe.repeats.listed_runs import loads_of, whole_runs, write_noise_floors
from observe.repeats.repeat_blocks import in_blocks
from observe.repeats.run_figures import run_figures
from observe.result.json_document import summarize_observed
from observe.settings import REPEATS, Settings
from traces.strict.arguments import PATH, SEED, OfClass, takes
from traces.workload import DEFAULT_SEED, as_sent

if TYPE_CHECKING:
    from observe.observation import Observation
    from observe.repeats.repeated_load import RepeatedLoads
    from traces import Trace


@takes(settings=OfClass(("Settings",), "Settings"), folder=PATH, repeats=REPEATS, seed=SEED)
async def observe_repeats(
    workloads: Mapping[str, Trace],
    settings: Settings,
    *,
    folder: str | Path,
    repeats: int = 5,
    seed: int = DEFAULT_SEED,
    resume: bool = False,
    slo_us: Mapping[str, float] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> RepeatedLoads:
    """Observe each workload ``repeats`` times, in blocks whose order ``seed`` draws; return their figures.

    Each run's prompts are new. The traces are in ``folder``, named after the workload (``NAME-run-1``), with the noise
    floor in their headers; with ``resume`` what is there is not sent again. Raises what ``observe_with`` does.
    """
    listed = [ListedLoad(name=name, requests=as_sent(each), purpose=name) for name, each in workloads.items()]

    async def observe(load: ListedLoad, stem: Path) -> Observation:
        return await observe_with(load.requests, settings, output=stem)

    loads = in_blocks(listed, repeats, seed=seed)
    outcomes = await run_loads(loads, Path(folder), observe=observe, resume=resume, tell=tell)
    traces = whole_runs(outcomes)
    found = loads_of(
        traces,
        {name: run_figures(summarize_observed(trace, slo_us=slo_us)) for name, trace in traces.items()},
    )
    write_noise_floors(Path(folder), found)
    return found
