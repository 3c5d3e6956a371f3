"""Sessions in numbers: for the document that ``--json`` prints, and for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import numpy as np

from replay.numbers.distribution import Distribution, distribution
from replay.sessions.results import SessionResults, session_results
from sim import HeldBlocks
from traces import four_digits
from traces.strict.escape import terminal

if TYPE_CHECKING:
    from replay.sessions.reuse import KVReuse
    from sim import EngineConfig
    from traces import Trace

MOST_LISTED = 10
"""Sessions that are listed, the slowest first."""
SHARES = (0.5, 0.8, 0.9, 0.95, 0.99, 1.0)
"""Shares of an unlimited cache's hits."""
SHOWN_SHARES = ("0.5", "0.9", "0.99")
CURVE_POINTS = 40
ALONE = 0.1
"""The share of the run in which one session alone is served from which on it stands beside the GPU-hours."""
MOST_SHOWN = 3
"""Sessions that are listed in a terminal."""


class SlowSession(TypedDict):
    """One session; times in µs."""

    session_id: str
    num_requests: int
    duration_us: float
    model_us: float
    tool_us: float
    cached_frac: float | None
    recomputed_tokens: int


class SessionsSummary(TypedDict):
    """Sessions as wholes. ``num_complete``: every request finished.

    Times are over complete sessions: ``duration_us`` from the first request to the last answer; of it ``model_us`` with
    a request under way, ``tool_us`` without one. Shares are of all prompt tokens: ``cached_frac`` found in the cache;
    of it ``cached_own_frac`` in blocks of the session alone, ``cached_shared_frac`` in blocks that others have, too;
    ``recomputed_frac`` an unlimited cache would have had. ``gpu_hours_per_session``: all of the run's over the complete
    sessions; ``cost_per_session`` likewise, None where the price of a GPU is not known; both pay for the run's end,
    ``alone_at_end_frac`` of it, in which one session alone is under way. ``slowest``: the longest complete sessions.
    """

    num_sessions: int
    num_complete: int
    num_requests: Distribution
    duration_us: Distribution
    model_us: Distribution
    tool_us: Distribution
    cached_frac: float | None
    cached_own_frac: float | None
    cached_shared_frac: float | None
    recomputed_frac: float | None
    gpu_hours_per_session: float | None
    cost_per_session: float | None
    alone_at_end_frac: float
    slowest: list[SlowSession]


class CacheNeeds(TypedDict):
    """How many KV blocks the prompts' hits need, were requests served one after another and the least recent evicted.

    ``ideal_hit_frac``: of prompt tokens, with an unlimited cache. ``num_gpu_blocks``: of one server, 0 without a limit;
    ``num_kept_blocks``: as many blocks of prompts as they keep, fewer where groups of layers share them, and
    ``hit_frac`` what so many find; ``num_blocks_with_tier`` and ``tier_hit_frac``: the same with what its host memory
    holds, None without any. ``blocks_for``: by share of the ideal hits. ``curve``: (blocks, share of prompt
    tokens).
    ``most_live_blocks``: most at a time that are asked for again later.
    """

    ideal_hit_frac: float
    num_gpu_blocks: int
    num_kept_blocks: int
    hit_frac: float
    num_blocks_with_tier: int | None
    tier_hit_frac: float | None
    blocks_for: dict[str, int]
    most_live_blocks: int
    block_size: int
    curve: list[tuple[int, float]]


def cache_needs(reuse: KVReuse, engine: EngineConfig) -> CacheNeeds:
    """Return what caches of every size find; ``engine``: one server."""
    num_gpu_blocks = engine.num_gpu_blocks
    on_gpu, on_host = _kept_blocks(engine, reuse)
    with_tier = _blocks_with_tier(engine, on_gpu, on_host) if num_gpu_blocks else None
    most = len(reuse.hits) - 1
    sizes = np.unique(
        np.rint(np.geomspace(max(min(reuse.largest, most), 1), max(most, 1), CURVE_POINTS)).astype(int)
    )
    return CacheNeeds(
        ideal_hit_frac=reuse.ideal_frac,
        num_gpu_blocks=num_gpu_blocks,
        num_kept_blocks=on_gpu,
        hit_frac=reuse.hit_frac(on_gpu if num_gpu_blocks else most),
        num_blocks_with_tier=with_tier,
        tier_hit_frac=None if with_tier is None else reuse.hit_frac(with_tier),
        blocks_for={f"{share:g}": max(reuse.blocks_for(share), reuse.largest) for share in SHARES},
        most_live_blocks=int(reuse.live.max(initial=0)),
        block_size=reuse.block_size,
        curve=[(size, reuse.hit_frac(size)) for size in sizes.tolist()],
    )


def _kept_blocks(engine: EngineConfig, reuse: KVReuse) -> tuple[int, int]:
    """Return how many blocks of prompts (KVReuse's) a server's GPU blocks and its host memory's keep.

    As many where all layers keep all. Else a prompt of mean length leaves blocks in every group; and while one is
    computed that finds nothing, it takes blocks that it will not leave, at the cost of what is kept.
    """
    if not engine.kv_cache_groups:
        return engine.num_gpu_blocks, engine.num_cpu_blocks
    held, num_tokens = HeldBlocks.of(engine), -(-reuse.num_prompt_tokens // max(len(reuse.live), 1))
    own = max(num_tokens // reuse.block_size, 1)
    left = max(held.kept(num_tokens, interval=engine.prefix_cache_retention_interval), 1)
    room = max(engine.num_gpu_blocks - max(held.fullest(num_tokens) - left, 0), 0)
    return room * own // left, engine.num_cpu_blocks * own // left


def _blocks_with_tier(engine: EngineConfig, on_gpu: int, on_host: int) -> int | None:
    """Return how many blocks GPU and host memory hold of different content, None without host memory.

    vLLM's own offloading keeps what is on the GPU in host memory, too; BLIS's tier has what the GPU gave up.
    """
    if not engine.has_cpu_tier:
        return None
    if engine.has_blis_tier:
        return on_gpu + on_host
    return max(on_gpu, on_host)


def needs_rows(needs: CacheNeeds) -> list[tuple[str, str]]:
    """Return how much the KV cache would have to hold, as terms."""
    told = []
    for share in SHOWN_SHARES:
        blocks = needs["blocks_for"][share]
        told.append(f"{float(share):.0%} of them {_millions(needs, blocks)}")
    found = f"an unlimited cache would find {needs['ideal_hit_frac']:.1%} of prompt tokens"
    terms = [("KV needed", f"{found}; million tokens of KV for {', '.join(told)}")]
    if needs["num_gpu_blocks"]:
        own = needs["num_kept_blocks"]
        servers = needs["blocks_for"]["0.95"] / max(own, 1)
        verb = "has" if own == needs["num_gpu_blocks"] else "keeps, its groups of layers together,"
        has = f"one server here {verb} {_millions(needs, own)}: alone it would find"
        terms.append(
            ("", f"{has} {needs['hit_frac']:.1%}; 95% of them take {four_digits(servers)} such servers")
        )
        if (both := needs["num_blocks_with_tier"]) is not None:
            found = f"it would find {needs['tier_hit_frac']:.1%}"
            terms.append(("", f"with its host memory it keeps {_millions(needs, both)}: {found}"))
    return terms


def _millions(needs: CacheNeeds, num_blocks: int) -> str:
    return four_digits(num_blocks * needs["block_size"] / 1e6)


def summarize_sessions(trace: Trace, *, block_size: int) -> SessionsSummary | None:
    """Return the summary of a simulated trace's sessions, None if it has none."""
    found = session_results(trace, block_size=block_size)
    if found is None:
        return None
    total = int(found.prompt_tokens.sum())

    def frac(tokens: int) -> float | None:
        return tokens / total if total else None

    return SessionsSummary(
        num_sessions=len(found.names),
        num_complete=int(found.is_complete.sum()),
        num_requests=distribution(found.num_requests.astype(np.float64)),
        duration_us=distribution(found.duration_us[found.is_complete]),
        model_us=distribution(found.model_us[found.is_complete]),
        tool_us=distribution(found.tool_us[found.is_complete]),
        cached_frac=frac(int(found.cached.sum())),
        cached_own_frac=frac(int(found.own.sum())),
        cached_shared_frac=frac(int(found.shared.sum())),
        recomputed_frac=frac(int(found.recomputed.sum())),
        gpu_hours_per_session=None,
        cost_per_session=None,
        alone_at_end_frac=_alone_at_end_frac(trace),
        slowest=_slowest(found),
    )


def _alone_at_end_frac(trace: Trace) -> float:
    """Return the share of a run, from its beginning, in which only the last session's requests are not yet over."""
    codes, _ = trace.cells("session_id").codes()
    ends = trace.cells("last_token_time_us").floats()
    known = np.isfinite(ends) & (ends > 0)
    if not known.any():
        return 0.0
    last = codes[known][int(ends[known].argmax())]
    others = ends[known & (codes != last)]
    end = float(ends[known].max())
    return (end - float(others.max())) / end if len(others) else 0.0


def add_cost(sessions: SessionsSummary, *, gpu_hours: float, cost: float | None) -> None:
    """Return a complete session's share of the run's GPU-hours, and of its cost."""
    if number := sessions["num_complete"]:
        sessions["gpu_hours_per_session"] = gpu_hours / number
        sessions["cost_per_session"] = None if cost is None else cost / number


def _slowest(found: SessionResults) -> list[SlowSession]:
    complete = np.flatnonzero(found.is_complete)
    order = complete[np.argsort(-found.duration_us[complete], kind="stable")][:MOST_LISTED]
    return [
        SlowSession(
            session_id=found.names[row],
            num_requests=int(found.num_requests[row]),
            duration_us=float(found.duration_us[row]),
            model_us=float(found.model_us[row]),
            tool_us=float(found.tool_us[row]),
            cached_frac=float(found.cached[row] / found.prompt_tokens[row])
            if found.prompt_tokens[row]
            else None,
            recomputed_tokens=int(found.recomputed[row]),
        )
        for row in order.tolist()
    ]


def session_rows(sessions: SessionsSummary) -> list[tuple[str, str]]:
    """Return the sessions, as terms."""
    counted = f"{sessions['num_complete']:,} of {sessions['num_sessions']:,} complete"
    lasted, model = _seconds(sessions["duration_us"]["mean"]), _seconds(sessions["model_us"]["mean"])
    if not sessions["num_complete"]:
        return [("sessions", counted)]
    tools = _seconds(sessions["tool_us"]["mean"])
    terms = [
        ("sessions", f"{counted}, {lasted} on average from first request to last answer"),
        ("", f"of it {model} for the model, {tools} for tools and people"),
    ]
    if sessions["cached_frac"] or sessions["recomputed_frac"]:
        own, shared = sessions["cached_own_frac"], sessions["cached_shared_frac"]
        cached = f"{own:.1%} cached from their own rounds, {shared:.1%} from what sessions share"
        terms.append(("", f"prompt tokens: {cached}, {sessions['recomputed_frac']:.1%} computed again"))
    if (hours := sessions["gpu_hours_per_session"]) is not None:
        cost = sessions["cost_per_session"]
        priced = "" if cost is None else f", a cost of {cost:.3g}"
        alone = sessions["alone_at_end_frac"]
        tail = f" (one session alone runs in the last {alone:.0%} of the time)" if alone >= ALONE else ""
        terms.append(("", f"{hours:.3g} GPU-hours a session{priced}{tail}"))
    for place, each in enumerate(sessions["slowest"][:MOST_SHOWN]):
        took, waited = _seconds(each["duration_us"]), _seconds(each["model_us"])
        name = terminal(each["session_id"])
        head = "  slowest" if place == 0 else ""
        terms.append((head, f"{name}: {took}, {each['num_requests']:,} requests, {waited} for the model"))
    return terms


def _seconds(value_us: float | None) -> str:
    return "-" if value_us is None else f"{four_digits(value_us / 1e6)} s"
