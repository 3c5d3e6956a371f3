"""The questions of ``vtwin fleet`` that are not about given profiles: pools of a file, and what a GPU's profile is."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from replay.fleet.answers import SizedFleet
from replay.fleet.demand import (
    FEWER,
    OF_A_FLEET,
    FleetCheck,
    doubts_of,
    infeasible,
    misfit_notes,
    objective_of,
    share_up,
    source_of,
    sources_of,
    workload_of,
)
from replay.fleet.inputs import OUTPUT_FRAC, SPILL_PER_ENGINE
from replay.fleet.inputs.computed import Computed, computed
from replay.fleet.inputs.failures import availability_note
from replay.fleet.inputs.fleet_ranges import FACTORS, in_range
from replay.fleet.inputs.fleet_workload import fitting_context, read_workload
from replay.fleet.inputs.outside_fit import outside_loads, outside_notes
from replay.fleet.inputs.pools_file import PoolSpec, assigned, read_labels, read_pools, router_of
from replay.fleet.inputs.profiles import ProfileSource, priced, profile_figures, profile_yaml
from replay.fleet.plans.pools import Asking, PoolsPlan, compressed, plan_pools, sizing_note
from replay.fleet.told.text import profile_parts
from replay.model.gpus import find_gpu
from replay.model.prices import read_prices
from replay.numbers.argument_ranges import GPUS, LENGTHS, RATE, TOKENS
from sim.fleet import Lengths
from sim.fleet.sizing import UTILIZATION_CAP
from traces import ConfigError, Trace
from traces.facts import terminal_lines
from traces.strict.arguments import PATH, TEXT, Number, takes

MEAN_LENGTHS = (1000.0, 250.0)
"""Prompt and output tokens that a profile is for, where no workload is given,"""
LONGEST = 8192
"""and the longest request."""


@takes(**OF_A_FLEET, pools=PATH, rate_per_s=RATE, router=TEXT, labels=PATH, spill=Number(0.001, 1e6))
def size_pools(  # noqa: PLR0913 - what a fleet can be asked for
    pools: Path | str,
    workload: Trace | Lengths | Path | str,
    rate_per_s: float,
    slo: str,
    *,
    router: str | None = None,
    labels: Path | None = None,
    spill: float = SPILL_PER_ENGINE,
    factor: float = 1.5,
    output_frac: float = OUTPUT_FRAC,
    total_tokens_max: int | None = None,
    availability: float = 1.0,
    failures: str | None = None,
    utilization_cap: float = UTILIZATION_CAP,
    prices: Path | None = None,
    check: FleetCheck = FEWER,
) -> SizedFleet:
    """Return a fleet of several pools, of different GPUs and models, behind one router.

    ``pools``: POOLS.yaml; ``router``: in place of the file's; ``labels``: a CSV of the requests' labels, for
    ``semantic``; ``spill``: requests per engine from which ``spillover`` sends on; ``factor``: of prompts that
    ``compress`` cuts. The others are those of ``fleet_demand``. Simulated pool by pool where the router does not look
    at load, else all together. Raises ConfigError where no size meets the limits.
    """
    named, specs = read_pools(Path(pools))
    chosen = router_of(router or named or "length")
    found = read_workload(workload, output_frac=output_frac, total_tokens_max=total_tokens_max)
    labelled = read_labels(found.whole, labels, router=chosen, name=str(workload))
    up, of_nodes = share_up(availability, failures)
    objective = objective_of(slo, utilization_cap=utilization_cap, availability=up)
    lengths, runs, arrivals = check.arriving(found.lengths, found.whole)
    costs = None if prices is None else read_prices(prices)
    if chosen == "compress":
        lengths = compressed(specs, lengths, factor=in_range("--compress", factor, FACTORS))
    pool_of = assigned(specs, chosen, lengths, labels=labelled, seed=check.seed)
    asking = Asking(
        source_of=lambda spec, part, context: source_of(spec.profile, part, context, prices=costs),
        context_of=fitting_context,
        spill_per_engine=spill,
        check=check.of_runs(runs),
        whole=found.whole,
    )
    with infeasible():
        plan = plan_pools(specs, chosen, lengths, rate_per_s, objective, pool_of=pool_of, asking=asking)
    left_out = float((pool_of < 0).mean())
    notes = _pools_notes(plan, specs, left_out=left_out, has_labels=labelled is not None)
    told = (*found.notes, *notes[:1], *of_nodes, *arrivals, *notes[1:])
    fleet = replace(plan.fleet, notes=told)
    return SizedFleet(plan=fleet, lengths=lengths, behind=replace(plan, fleet=fleet))


def _pools_notes(
    plan: PoolsPlan, specs: Sequence[PoolSpec], *, left_out: float, has_labels: bool
) -> list[str]:
    """Return notes: which requests are left out, how pools were sized, how many nodes are up, what profiles are."""
    sources = list({each.source.name: each.source for each in plan.fleet.pools}.values())
    notes = [sizing_note(plan.router, has_labels=has_labels)]
    if left_out:
        notes.insert(
            0, f"{left_out:.2%} of the requests fit into no pool, or none takes them: they are left out"
        )
    if specs[0].failures and all(each.failures == specs[0].failures for each in specs):
        notes.append(availability_note(specs[0].failures))
    else:
        notes += [availability_note(each.failures, of=each.name) for each in specs if each.failures]
    pools = [each for each in plan.fleet.pools if each.engines]
    beyond = [
        *dict.fromkeys(note for each in pools for note in outside_notes([each.source], each.need.lengths)),
        *outside_loads(each.load for each in pools),
    ]
    return [*notes, *beyond, *misfit_notes(sources, power=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetProfile:
    """What a GPU can do. ``computed``: of which terms, where it is computed from a model and a GPU.

    ``notes``: why not to trust the twin that it is of.
    """

    source: ProfileSource
    computed: Computed | None = None
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, object]:
        """Return what ``vtwin fleet profile --json`` prints."""
        found, made = self.source, self.computed
        misfit = None if found.misfit is None else asdict(found.misfit)
        told = {"name": found.name, "profile": profile_figures(found.profile), "misfit": misfit}
        if made is None:
            return {**told, "notes": list(self.notes)}
        return {
            **told,
            "terms": [asdict(each) for each in made.terms],
            "prefill": {**asdict(made.prefill), "bound": made.prefill.bound},
            "assumptions": dict(made.assumptions),
        }

    def __str__(self) -> str:
        """Return the profile as a file that ``--profile`` takes."""
        terms = (
            []
            if self.computed is None
            else [f"# {line}" for line in terminal_lines(profile_parts(self.computed), width=None)]
        )
        return "\n".join([*terms, *profile_yaml(self.source).splitlines()])


@takes(source=PATH, model=TEXT, gpu=TEXT, tp=GPUS, workload=LENGTHS, context=TOKENS, prices=PATH)
def fleet_profile(  # noqa: PLR0913 - what a profile can be of
    source: Path | str | None = None,
    *,
    model: str | None = None,
    gpu: str | None = None,
    tp: int = 1,
    workload: Trace | Lengths | Path | str | None = None,
    context: int | None = None,
    output_frac: float = OUTPUT_FRAC,
    total_tokens_max: int | None = None,
    prices: Path | None = None,
) -> FleetProfile:
    """Return a GPU's profile: of ``source``, a twin's file or a name of the table, or computed from model and GPU.

    ``workload``: whose mean lengths the profile is for; None: 1,000 and 250 tokens. Raises ConfigError.
    """
    if (source is None) == (model is None) or (model is None) != (gpu is None):
        raise ConfigError("fleet profile: expected --from, or --model and --gpu")
    if workload is None:
        inputs, outputs = (np.array([each]) for each in MEAN_LENGTHS)
        lengths, longest = Lengths(input_tokens=inputs, output_tokens=outputs), context or LONGEST
    else:
        found, longest = workload_of(
            workload, context=context, output_frac=output_frac, total_tokens_max=total_tokens_max
        )
        lengths = found.lengths
    if model is not None and gpu is not None:
        find_gpu(gpu)
        made = computed(model, gpu, tp=tp, lengths=lengths, context=longest)
        costs = None if prices is None else read_prices(prices)
        return FleetProfile(source=priced(made.source, costs), computed=made)
    read = sources_of([str(source)], lengths, longest, prices=prices)[0]
    return FleetProfile(source=read, notes=tuple(doubts_of([read])))
