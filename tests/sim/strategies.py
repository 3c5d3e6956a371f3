"""Cases that make an engine work for its living: drawn so that blocks run out, prefixes meet and times tie.

``cases()`` draws all of it; ``tests/sim/test_strategies.py`` fails when it stops reaching preemption, hits, stuck
requests and the rest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from sim import (
    Blackbox,
    EngineConfig,
    Extended,
    LatencyModel,
    Outcomes,
    PeakTimes,
    Physics,
    Profiled,
    Requests,
    Roofline,
    Simulation,
    simulate,
)
from sim.config import Record
from sim.latency.profiled import axis_knots

Setting = bool | int | float | str
Row = dict[str, Any]
Pick = Callable[[Sequence[Any]], Any]
"""Returns one of what it is given: hypothesis's choice, which shrinks, or a seeded one, which spreads better."""

CACHE_SIZES = (0.0, 0.4, 0.2, "too small", 0.3, 0.6, 1.0, "too small", "unbounded")
"""Of a drawn cache, in what all requests need together; it holds the longest of them, but for "too small"."""

STEP_COSTS = ("50", "7", "100", "1", "0", "0.5", "33.5", "12.25", "19.999999")

POLICIES = ("fcfs", "fcfs", "fcfs", "priority", "priority", "sjf", "reverse-priority")

AGE_WEIGHTS = (0, 250_000, 1_000_000)
"""Per second, so that a µs of age weighs exactly 0, 1/4 or 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What one call of ``simulate`` takes."""

    requests: Requests
    config: EngineConfig
    latency: LatencyModel
    closed_loop: tuple[int, int] | None = None
    max_concurrency: int | None = None
    until_us: int | None = None

    def run(self, *, coalesce: bool = True, record: Record = "none", points: int | None = None) -> Simulation:
        """Simulate it."""
        return simulate(
            self.requests,
            self.config,
            self.latency,
            coalesce=coalesce,
            record=record,
            closed_loop=self.closed_loop,
            max_concurrency=self.max_concurrency,
            until_us=self.until_us,
            points=points,
        )

    def under(self, **changes: Setting) -> Case:
        """Return the case with other settings of the engine."""
        config = replace(self.config, **changes)  # type: ignore[arg-type]
        return replace(self, config=config)


def requests_of(rows: list[Row]) -> Requests:
    """Return rows with arrival_us, prompt, output and, where they have them, priority and hash_ids as columns."""
    hashes = [row.get("hash_ids", []) for row in rows]

    def column(name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array([row.get(name, 0) for row in rows], np.int64)

    return Requests(
        arrival_us=column("arrival_us"),
        prompt_tokens=column("prompt"),
        output_tokens=column("output"),
        priority=column("priority"),
        hash_offsets=np.cumsum([0] + [len(ids) for ids in hashes]).astype(np.int64),
        hash_ids=np.array([number for ids in hashes for number in ids], np.int64),
    )


def blackbox(pick: Pick) -> Blackbox:
    """Pick coefficients: whole and fractional, zero included."""
    named = ("alpha0", "alpha1", "alpha2") if pick((False, True)) else ()
    costs = {name: pick(STEP_COSTS) for name in ("beta0", "beta1", "beta2", *named)}
    return Blackbox(**costs)


def extended(pick: Pick) -> Extended:
    """Pick a model with attention, a floor and a slow state."""
    costs = (0.7, 3.0, 0.0, 40.0)
    return Extended(
        alpha0=pick(costs),
        beta0=pick(costs),
        beta1=pick(costs),
        beta2=pick(costs),
        beta3=pick(costs) / 10,
        beta4=pick(costs) / 100,
        beta5=pick(costs),
        floor=pick(costs) * 10,
        kappa=pick((0.0, 0.3)),
        u0=pick((0.0, 0.4)),
        concavity=pick((0.0, 0.3)),
        tau_s=pick((1e-4, 1e-2)),
    )


def scattered(pick: Pick) -> Extended:
    """Pick an extended model whose steps scatter."""
    return replace(extended(pick), sigma=0.2, seed=pick(range(4)))


def tiled(pick: Pick) -> Extended:
    """Pick an extended model whose products jump where their tiles end; no factor is below the one before."""
    jumps = pick((((1, 0.8), (4, 0.9), (5, 1.3)), ((2, 1.0), (40, 1.0), (41, 1.5), (64, 1.5))))
    return replace(extended(pick), tiles=jumps)


def peak_times(pick: Pick) -> PeakTimes:
    """Pick a made-up model on a made-up GPU, tiny enough for steps of some µs."""
    costs = (0.7, 3.0, 0.0, 40.0)
    return PeakTimes(
        matmul=pick(costs),
        weights=pick(costs) * 10,
        head_matmul=pick(costs),
        head_weights=pick(costs),
        prefill_pair=pick(costs) / 100,
        decode_entry=pick(costs) / 100,
        kv_entry=pick(costs) / 10,
        kv_write=pick(costs) / 10,
        activation=pick(costs) / 10,
        num_layers=pick((2, 1, 5)),
        expert_matmul=pick(costs),
        expert_weights=pick(costs) * 10,
        num_experts=pick((0, 8)),
        num_experts_per_token=pick((2, 1, 8)),
        num_moe_layers=pick((0, 2)),
        windowed_prefill_pair=pick(costs) / 100,
        windowed_decode_entry=pick(costs) / 100,
        windowed_kv_entry=pick(costs) / 10,
        window=pick((0, 3, 20)),
        recurrence=pick(costs) / 10,
        chain=pick(costs) / 10,
        state=pick(costs),
        per_token=pick(costs) / 10,
        all_reduce=pick(costs),
        num_all_reduces=pick((0, 4)),
        send_recv=pick(costs),
        tp=pick((1, 2)),
        pp=pick((1, 1, 2)),
        is_grouped=pick((True, False)),
        block_layers=pick((0, 2)),
        latent_layers=pick((0, 2)),
        norm_layers=pick((0, 2)),
        **pick(({}, {"experts_tokens": (1.0, 4.0, 9.0), "experts_us": (2.0, 3.5, 30.0)})),
    )


def roofline(pick: Pick) -> Roofline:
    """Pick a roofline of a made-up model."""
    costs = (0.7, 3.0, 0.0, 40.0)
    return Roofline(
        alpha0=pick(costs),
        peak=peak_times(pick),
        all_reduce_us=pick(costs),
        layer_us=pick(costs),
        moe_layer_us=pick(costs),
        step_us=pick(costs),
        sequence_us=pick(costs),
        cpu_step_us=pick(costs),
        cpu_sequence_us=pick(costs),
        cpu_exposed=pick((0.0, 1.0)),
        max_capture_size=pick((512, 0, 8)),
        sigma=pick((0.0, 0.0, 0.2)),
    )


def profiled(pick: Pick) -> Profiled:
    """Pick tables of a made-up profile: rising along every axis, some ending before the engine's steps do."""
    tokens, sequences, keys = (axis_knots(pick((most, 17, 1))) for most in (600, 60, 900))
    costs = (0.7, 3.0, 0.0, 40.0)
    curve = pick((0.5, 1.0, 1.5))
    tokens_us = pick(costs) + pick(costs) * tokens**curve
    return Profiled(
        alpha0=pick(costs),
        alpha1=pick((0.0, 0.01)),
        alpha2=pick((0.0, 2.5)),
        tokens_us=tokens_us,
        tokens_after_us=pick((None, tokens_us + 250.0 * (tokens % 32 == 0))),
        sequences_us=pick(costs) * np.ceil(sequences / 8),
        decode_us=pick(costs) * np.maximum.outer(sequences, keys)
        + pick((0.0, 0.01)) * np.multiply.outer(sequences, keys),
        prefill_us=pick(costs) + pick((0.001, 0.1)) * np.multiply.outer(tokens, keys) ** curve,
        chunks_us=pick((None, pick(costs) + pick((0.0, 0.3)) * np.add.outer(4 * sequences, tokens))),
        scale=pick((1.0, 0.5, 3.0)),
        step=pick(costs),
        decode_batching=pick((0.0, 0.0, 0.1)),
        prefill_batching=pick((0.0, 0.0, 0.25)),
        nccl_launch=pick((0.0, 20.0)),
        nccl_skew=pick((0.0, 1.5)),
        tp=4,
        num_collectives=pick((0.0, 9.0)),
    )


def physics(pick: Pick) -> Physics:
    """Pick a physics-informed model of a made-up model."""
    factors, costs = (1.3, 0.15, 0.0, 4.0), (0.7, 3.0, 0.0, 40.0)
    named = (
        "prefill_compute",
        "decode_compute",
        "prefill_attention",
        "decode_attention",
        "prefill_kv",
        "decode_kv",
    )
    named += ("weights", "head", "activation", "tensor_parallel", "expert_compute", "expert_weights")
    named += ("experts_measured",)
    return Physics(
        alpha0=pick(costs),
        peak=peak_times(pick),
        **{name: pick(factors) for name in named},
        layer_us=pick(costs),
        expert_tile=pick((0.0, 16.0)),
        moe_layer_us=pick(costs),
        interleaved_moe_layer_us=pick(costs),
        block_us=pick(costs),
        latent_us=pick(costs),
        norm_us=pick(costs),
        all_reduce_us=pick(costs),
        request_us=pick(costs),
        step_us=pick(costs),
        cpu_step_us=pick(costs),
        cpu_request_us=pick(costs),
        cpu_exposed=pick((0.0, 1.0)),
        exposed=pick((0.0, 1.0, 0.4)),
    )


def any_model(pick: Pick) -> LatencyModel:
    """Pick one of every latency model the engine computes."""
    model: LatencyModel = pick((blackbox, extended, tiled, scattered, roofline, physics, profiled))(pick)
    return model


def beginning(pick: Pick, rows: list[Row], row: Row, *, block_size: int) -> list[int]:
    """Pick the blocks a request begins with: none, or an earlier one's; often they make its prompt to the last."""
    if not rows or pick((True, True, True, False)) is False:
        return []
    source: list[int] = pick(rows)["hash_ids"]
    shared = source[: len(source) - int(pick(range(len(source) + 1)))]
    if pick((True, True, False)):
        row["prompt"] = max(1, len(shared) * block_size + pick(range(-1, block_size + 1)))
    return shared


def request_rows(pick: Pick, *, block_size: int) -> list[Row]:
    """Pick requests whose arrivals tie and whose contents share beginnings, past the prompt too.

    ``hash_ids`` name blocks so that a later request can share them; with "everything" those of the outputs too.
    """
    longest = pick((4, 2, 5)) * block_size
    gap = pick((50, 0, 100, 0, 1000, 10_000))
    named = pick(("everything", "everything", "prompt", "nothing"))
    lengths = range(1, longest + 1)
    rows: list[Row] = []
    arrival_us = num_ids = 0
    for _ in range(pick((12, 8, 5, 12, 8, 3, 2, 1))):
        arrival_us += gap * pick((0, 0, 1, 1, 2, 5))
        row: Row = {"arrival_us": arrival_us, "prompt": pick(lengths), "output": pick(lengths)}
        row["priority"] = pick((0, 1, 2))
        if named != "nothing":
            shared = beginning(pick, rows, row, block_size=block_size)
            tokens = row["prompt"] + (row["output"] if named == "everything" else 0)
            fresh = max(0, tokens // block_size - len(shared))
            row["hash_ids"] = [*shared, *range(num_ids, num_ids + fresh)]
            num_ids += fresh
        rows.append(row)
    if pick(range(16)) == 15:  # what no front end lets through
        pick(rows)[pick(("prompt", "output"))] = 0
    return rows


def blocks_for(rows: list[Row], block_size: int, *, size: float | str) -> int:
    """Return ``num_gpu_blocks`` of a cache for requests, ``size`` one of CACHE_SIZES."""
    needed = [-(-int(row["prompt"] + row["output"]) // block_size) for row in rows]
    if size == "unbounded":
        return 0
    if size == "too small":
        return 2 + max(needed) * 2 // 3
    return 2 + max(*needed, 0, int(float(size) * sum(needed)))


def config_for(pick: Pick, rows: list[Row], *, block_size: int, is_async: bool | None) -> EngineConfig:
    """Pick every setting of the engine, so that each of them binds now and then, and vLLM would take it.

    Only of a cache below one longest sequence vLLM would say no: what such a cache leads to is recorded as well.
    """
    is_chunked = pick((True, False))
    max_model_len, max_num_batched_tokens = length_and_budget(pick, rows, is_chunked=is_chunked)
    return EngineConfig(
        max_num_seqs=min(pick((4, 8, 16, 8, 3, 2, 1)), max_num_batched_tokens),
        max_num_batched_tokens=max_num_batched_tokens,
        num_gpu_blocks=blocks_for(rows, block_size, size=pick(CACHE_SIZES)),
        block_size=block_size,
        max_model_len=max_model_len,
        enable_prefix_caching=pick((True, True, False)),
        enable_chunked_prefill=is_chunked,
        long_prefill_token_threshold=pick((0, 0, 1, 5, 20)),
        long_prefill_token_threshold_adaptive=pick((False, True)),
        scheduler_reserve_full_isl=pick((True, False)),
        watermark=pick((0.0, 0.1, 0.3)),
        scheduling_policy=pick(POLICIES),
        priority_scoring=pick(("constant", "slo-based", "inverted-slo")),
        priority_age_weight=pick(AGE_WEIGHTS),
        async_scheduling=pick((False, True)) if is_async is None else is_async,
        frontend=pick(("openai", "openai", "none")),
    )


def length_and_budget(pick: Pick, rows: list[Row], *, is_chunked: bool) -> tuple[int, int]:
    """Pick max_model_len and max_num_batched_tokens: without chunked prefill, a step holds any sequence whole.

    Also a prompt of more than max_model_len tokens, where no front end stops it: else it would wait for ever.
    """
    longest = max(row["prompt"] + row["output"] for row in rows)
    lengths = (1 + longest // 2, longest, max(2, longest - 5))
    if is_chunked:
        return pick((1000, 1000, 1000, 1000, 1000, *lengths)), pick((17, 8, 3, 1, 32, 64, 64, 200, 1000))
    max_model_len = pick(lengths)
    return max_model_len, max(max_model_len, *(row["prompt"] for row in rows)) + pick((0, 0, 0, 1, 30))


@functools.cache
def _index_below(number: int) -> st.SearchStrategy[int]:
    """Return one strategy per number of options: to make one for each choice took half the time of drawing."""
    return st.integers(0, number - 1)


@st.composite
def picks(draw: st.DrawFn) -> Pick:
    """Draw a way to pick: half of them hypothesis's own, half a generator's of a drawn seed."""
    if draw(st.booleans()):
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        return lambda options: options[int(rng.integers(len(options)))]
    return lambda options: options[draw(_index_below(len(options)))]


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    is_async: bool | None = None,
    closed: bool | None = False,
    model: Callable[[Pick], LatencyModel] = blackbox,
    impatient: bool = False,
    costly: bool = False,
    staged: bool = False,
    stopping: bool = False,
) -> Case:
    """Draw a whole case; ``closed`` None draws open and closed loops; ``impatient``: with deadlines, half the time.
    ``costly``: with grammars, adapters and encoders that take time, half the time. ``staged``: with 2 to 4 pipeline
    stages. ``stopping``: some requests end before their max_tokens, half the time.
    """
    pick = draw(picks())
    block_size = pick((4, 8, 16, 3, 2, 1))
    rows = request_rows(pick, block_size=block_size)
    config = config_for(pick, rows, block_size=block_size, is_async=is_async)
    is_closed = pick((False, True)) if closed is None else closed
    loop = (pick((1, 2, 3, 4)), pick((0, 1, 100, 777))) if is_closed else None
    case = Case(requests=requests_of(rows), config=config, latency=model(pick), closed_loop=loop)
    if staged:
        case = case.under(pipeline_parallel_size=pick((2, 3, 4)))
    if stopping and pick((True, False)):
        case = with_ends(pick, case)
    if costly and pick((True, False)):
        case = with_added_time(pick, case)
    if impatient and pick((True, False)):
        return replace(case, requests=replace(case.requests, deadline_us=deadlines(pick, case)))
    return case


def with_ends(pick: Pick, case: Case) -> Case:
    """Pick how many tokens each request might have generated: as many as it does, one or a few more, or any number."""
    more = np.array([pick((0, 0, 1, 2, 7, 1 << 30)) for _ in case.requests.output_tokens], np.int64)
    return replace(case, requests=replace(case.requests, max_tokens=case.requests.output_tokens + more))


def with_added_time(pick: Pick, case: Case) -> Case:
    """Pick traits of requests and what they cost, in sums of powers of two: no order of adding matters."""
    n = len(case.requests)
    requests = replace(
        case.requests,
        is_guided=np.array([pick((False, True)) for _ in range(n)], np.bool_),
        encoder_tokens=np.array([pick((0, 3, 10)) for _ in range(n)], np.int64),
        adapter=np.array([pick((-1, 0, 1, 2)) for _ in range(n)], np.int64),
    )
    costly = case.under(
        max_loras=pick((0, 1, 2, 1)),
        lora_load_us=pick((0, 130)),
        lora_step_factor=pick((1.0, 1.25, 1.5)),
        guided_compile_us=pick((0, 70, 700, 3000)),
        guided_mask_us=pick((0.0, 0.5, 2.25)),
        encoder_token_us=pick((0.0, 1.5)),
    )
    if costly.config.encoder_token_us > 0 and costly.config.guided_mask_us > 0:
        costly = costly.under(encoder_step_us=40.0, encoder_data_parallel_size=2)
    return replace(costly, requests=requests)


def deadlines(pick: Pick, case: Case) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Pick until when each client waits, -1 for ever: about as long as all requests take together, or much less."""
    outcomes = case.run().outcomes
    span_us = max(8, int(outcomes.last_token_us.max(initial=0)))
    patience = (-1, span_us, span_us // 2, span_us // 4, span_us // 8, 100, 10, 0)
    own = [(pick(patience), int(arrival_us)) for arrival_us in case.requests.arrival_us]
    return np.array([-1 if wait < 0 else arrival_us + wait for wait, arrival_us in own], np.int64)


@st.composite
def crowds(draw: st.DrawFn, *, model: Callable[[Pick], LatencyModel] = blackbox) -> Case:
    """Draw a closed loop of small requests, many of which the front end refuses, and of clients that give up soon."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))

    def pick(options: Any) -> Any:  # noqa: ANN401 - as ``Pick``
        return options[int(rng.integers(len(options)))]

    longest = pick((3, 6))
    rows = [{"arrival_us": 0, "prompt": 1, "output": pick((1, 2, 4, 99, 99))} for _ in range(12)]
    arrived_us = np.cumsum([pick((0, 0, 0, 3)) for _ in rows])
    patience_us = np.array([pick((-1, -1, 0, 5, 20, 60)) for _ in rows])
    requests = replace(
        requests_of(rows),
        arrival_us=arrived_us,
        deadline_us=np.where(patience_us < 0, -1, arrived_us + patience_us),
    )
    config = EngineConfig(
        max_model_len=longest,
        max_num_seqs=pick((1, 2, 3)),
        max_num_batched_tokens=12,
        num_gpu_blocks=1000,
        async_scheduling=pick((False, True)),
    )
    loop = (pick((1, 2, 3)), pick((0, 0, 5)))
    return Case(requests=requests, config=config, latency=model(pick), closed_loop=loop)


def assert_same_outcomes(ours: Outcomes, theirs: Outcomes) -> None:
    """Compare every column bit for bit."""
    for field in fields(Outcomes):
        np.testing.assert_array_equal(
            getattr(ours, field.name), getattr(theirs, field.name), err_msg=field.name
        )
