"""A fleet of any number of pools, of different GPUs and models: who takes what, how large each is, and their check."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from replay.plan.fleet.profiles import Source
from replay.plan.fleet.size import Check, FleetPlan, PoolPlan, plan_pool
from replay.plan.fleet.verify import drawn_rows
from sim.fleet import Lengths, provisioned
from sim.fleet.routers import FleetPool, Router, RouterName, simulate_routed
from sim.fleet.sizing import Objective
from traces.errors import ConfigError
from traces.strict.section import Section, read_section

PoolRouter = Literal["length", "spillover", "least-loaded", "random", "model", "semantic"]
ROUTERS: tuple[PoolRouter, ...] = get_args(PoolRouter)
BY_LABEL = ("model", "semantic")
SHARED = ("spillover", "least-loaded")
"""Routers that look at the load of several pools: no pool can be simulated alone."""
KEYS = ("name", "profile", "up_to", "takes", "share", "price")
MOST_TRIES = 8
STRIDE = 0.05
SETTLING = 0.2
"""Share of the requests, the first to arrive, that is not measured."""

Ints = NDArray[np.int64]
Texts = NDArray[np.str_]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """One pool as the file has it. ``up_to``: longest request, tokens; ``price``: of a GPU and hour."""

    name: str
    profile: str
    up_to: int | None
    takes: tuple[str, ...]
    share: float | None
    price: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCheck:
    """Pools behind one router, simulated at the level of slots. Times in seconds; ``shares``: of requests, by pool.

    ``growth``: the formulas' engines times so much.
    """

    growth: float
    engines: tuple[int, ...]
    shares: tuple[float, ...]
    ttft_p50_s: float
    ttft_p99_s: float
    num_requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolsPlan:
    """A fleet behind a router. ``tried``: simulations of all pools together, the last counts; else each by itself."""

    fleet: FleetPlan
    router: PoolRouter
    tried: tuple[SharedCheck, ...] = ()

    @property
    def is_met(self) -> bool | None:
        """Whether the objective was kept in simulation; None where nothing was simulated."""
        if not self.tried:
            return self.fleet.is_met
        return self.tried[-1].ttft_p99_s <= self.fleet.objective.ttft_p99_s

    @property
    def level(self) -> str | None:
        """What simulated it: ``engines`` or ``slots``; None: nothing did."""
        if self.tried:
            return "slots"
        return None if self.fleet.is_met is None else "engines"


def read_pools(path: Path) -> tuple[PoolRouter | None, list[PoolSpec]]:
    """Return the router and the pools of a file, the shortest requests' first. Raises ConfigError."""
    root = read_section(path)
    root.refuse_unknown(("router", "pools"))
    router = root.text("router", choices=ROUTERS)
    specs = [_spec(each) for each in root.sections("pools")]
    if not specs:
        raise ConfigError(f"pools: got none in {path}, expected at least one")
    names = [each.name for each in specs]
    if len(set(names)) < len(names):
        raise ConfigError(f"pools: got a name twice in {path}, expected different names")
    specs.sort(key=lambda each: math.inf if each.up_to is None else each.up_to)
    return cast("PoolRouter | None", router), specs


def _spec(section: Section) -> PoolSpec:
    section.refuse_unknown(KEYS)
    profile, share, price = (
        section.text("profile"),
        section.decimal("share", expected="a share of the requests"),
        section.decimal("price", expected="a price per GPU and hour"),
    )
    if profile is None:
        section.fail(
            "profile", got="nothing", expected="A100, H100, MODEL@GPU:TP, a twin or a profile's file"
        )
    return PoolSpec(
        name=section.text("name") or profile,
        profile=profile,
        up_to=section.integer("up_to", least=16),
        takes=section.texts("takes"),
        share=None if share is None else float(share),
        price=None if price is None else float(price),
    )


def read_labels(workload: Path, labels: Path | None, *, router: PoolRouter) -> Texts | None:
    """Return each request's label, in the order of ``read_lengths``; None where nobody labelled them.

    ``model``: the trace's own column. ``semantic``: ``labels``, a CSV of request_id and label, as a classifier of the
    user's wrote it. Raises ConfigError.
    """
    if router not in BY_LABEL or workload.suffix == ".json":
        return None
    from traces.importers.recorded import read_recorded

    trace = read_recorded(workload)
    outputs = trace.column("output_tokens").astype("float64")
    known = (outputs >= 1).fillna(False).to_numpy(dtype=bool)
    if router == "model":
        return np.asarray(trace.column("model").astype("string").fillna(""), dtype=np.str_)[known]
    if labels is None:
        raise ConfigError(
            "--labels: got nothing, expected a CSV of request_id and label for the router semantic"
        )
    try:
        with labels.open(newline="") as file:
            by_request = {row["request_id"]: row["label"] for row in csv.DictReader(file)}
    except (OSError, KeyError) as error:
        raise ConfigError(
            f"--labels: got {labels}, expected a CSV of request_id and label ({error})"
        ) from error
    ids = trace.column("request_id").astype("string")
    return np.array([by_request.get(str(each), "") for each in ids], dtype=np.str_)[known]


def assigned(
    specs: Sequence[PoolSpec], router: PoolRouter, lengths: Lengths, *, labels: Texts | None, seed: int
) -> Ints:
    """Return the pool that each request is sized for, int64 [n]; -1: none takes it.

    By length the first pool that holds it, by label the pool that takes it; else, and without labels, by the pools'
    shares (equal ones unless written) among those that hold it, drawn by ``seed``. Raises ConfigError.
    """
    limits = np.array([math.inf if each.up_to is None else each.up_to for each in specs])
    fits = lengths.total_tokens[:, None] <= limits[None, :]
    if router in BY_LABEL and labels is not None:
        taken = {label: number for number, each in enumerate(specs) for label in each.takes}
        pools = np.array([taken.get(str(each), -1) for each in labels], np.int64)
        if (pools < 0).all():
            there = ", ".join(sorted(set(labels.tolist())))
            raise ConfigError(f"takes: got {', '.join(taken) or 'no labels'}, expected some of {there}")
        held = fits[np.arange(len(pools)), pools]
        return np.where(held, pools, -1)
    if router in ("length", "spillover"):
        return np.where(fits.any(1), fits.argmax(1), -1).astype(np.int64)
    if router in BY_LABEL and any(each.share is None for each in specs):
        raise ConfigError(f"--router {router}: got a workload without labels, expected a share for each pool")
    shares = np.array([1.0 if each.share is None else each.share for each in specs])
    # a request of some model must go to that model's pool: one that is too long is nobody's
    weight = np.broadcast_to(shares, fits.shape) if router in BY_LABEL else fits * shares
    edges = np.cumsum(weight, axis=1)
    draws = np.random.Generator(np.random.Philox(seed)).random(len(lengths))
    chosen = (draws[:, None] * edges[:, -1:] >= edges).sum(1).clip(max=len(specs) - 1)
    return np.where(fits[np.arange(len(chosen)), chosen], chosen, -1).astype(np.int64)


def plan_pools(  # noqa: PLR0913 - what a fleet is sized from
    specs: Sequence[PoolSpec],
    router: PoolRouter,
    lengths: Lengths,
    rate_per_s: float,
    objective: Objective,
    *,
    pool_of: Ints,
    source_of: Callable[[PoolSpec, Lengths, int], Source],
    context_of: Callable[[Lengths], int],
    check: Check | None,
    spill_per_gpu: float,
) -> PoolsPlan:
    """Return all pools sized for their requests, and simulated.

    Where the router needs no pool's load, each pool is simulated by the token-level engine; what comes to it is
    Poisson again. Else all together at the level of slots, and made larger until the objective is kept.
    Raises Infeasible where no size keeps it, ConfigError where nobody is sent to a pool.
    """
    plans = []
    for number, spec in enumerate(specs):
        mine = pool_of == number
        if not mine.any():
            raise ConfigError(f"pool {spec.name}: got no requests, expected some")
        part, share = lengths.where(mine), float(mine.mean())
        context = spec.up_to or context_of(part)
        source = source_of(spec, part, context)
        if spec.price is not None:
            cost = spec.price * source.profile.num_gpus
            source = replace(source, profile=replace(source.profile, cost_per_hour=cost))
        plans.append(
            plan_pool(
                source,
                part,
                rate_per_s * share,
                objective,
                context=context,
                check=None if router in SHARED else check,
                name=spec.name,
                share=share,
            )
        )
    fleet = FleetPlan(pools=tuple(plans), objective=objective, rate_per_s=rate_per_s)
    if check is None or router not in SHARED:
        return PoolsPlan(fleet=fleet, router=router)
    tried = list[SharedCheck]()
    growth, stride = 1.0, STRIDE
    served = lengths.where(pool_of >= 0)
    while len(tried) < MOST_TRIES:
        tried.append(_together(plans, router, served, growth, check=check, spill=spill_per_gpu))
        if tried[-1].ttft_p99_s <= objective.ttft_p99_s:
            break
        growth, stride = growth + stride, 2 * stride
    grown = tuple(
        replace(plan, engines=number, provisioned=provisioned(number, objective.availability))
        for plan, number in zip(plans, tried[-1].engines, strict=True)
    )
    return PoolsPlan(fleet=replace(fleet, pools=grown, is_shared=True), router=router, tried=tuple(tried))


def _together(
    plans: Sequence[PoolPlan],
    router: PoolRouter,
    lengths: Lengths,
    growth: float,
    *,
    check: Check,
    spill: float,
) -> SharedCheck:
    """Simulate all pools at the level of slots, each so many times as large as its formula says."""
    engines = tuple(math.ceil(plan.analytic.engines * growth - 1e-9) for plan in plans)
    order = sorted(range(len(plans)), key=lambda i: plans[i].context)
    rate = sum(plan.rate_per_s for plan in plans)
    arrival_s, rows = drawn_rows(len(lengths), rate, check.num_requests, seed=check.seed)
    given = Lengths(input_tokens=lengths.input_tokens[rows], output_tokens=lengths.output_tokens[rows])
    pools = [
        FleetPool(profile=plans[i].source.profile, context=plans[i].context, gpus=engines[i]) for i in order
    ]
    name = cast("RouterName", router)
    run = simulate_routed(pools, given, arrival_s, Router(name=name, spill_per_gpu=spill, seed=check.seed))
    measured = run.ttft_s[int(SETTLING * len(given)) :]
    lost = np.where(np.isnan(measured), np.inf, measured)  # nobody served it: it counts as late
    shares = {pool: float((run.pool == place).mean()) for place, pool in enumerate(order)}
    return SharedCheck(
        growth=growth,
        engines=engines,
        shares=tuple(shares[i] for i in range(len(plans))),
        ttft_p50_s=float(np.percentile(lost, 50, method="inverted_cdf")),
        ttft_p99_s=float(np.percentile(lost, 99, method="inverted_cdf")),
        num_requests=len(given),
    )


def sizing_note(router: PoolRouter, *, has_labels: bool) -> str:
    """Return how the requests of a pool were chosen, and what simulates the fleet."""
    how: Mapping[str, str] = {
        "length": "each pool is sized for the requests that it is the shortest to hold",
        "spillover": "each pool is sized as by length; what spills over is in the simulation alone",
        "least-loaded": "each pool is sized for its share of the requests that it holds",
        "random": "each pool is sized for its share of the requests that it holds",
        "model": "each pool is sized for the models that it takes",
        "semantic": "each pool is sized for the labels that it takes",
    }
    drawn = "; labels are drawn by the pools' shares" if router in BY_LABEL and not has_labels else ""
    level = (
        "all pools together at the level of slots, not by the token-level engine, whose router does not know pools "
        "by length or capacity"
        if router in SHARED
        else "each pool by the token-level engine: this router does not look at load"
    )
    return f"router {router}: {how[router]}{drawn}; verified {level}"
