"""Other ways through the engine, each of which must end where the plain one does.

The plain way is one call that takes every step singly; it is what is compared with vLLM. The engine can also
jump over equal steps, be fed and advanced bit by bit, and go without a KV cache's bound.
"""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np

from sim import Engine, Outcomes, Simulation, Status, simulate
from sim.config import UNBOUNDED
from sim.requests import Int64s
from tests.conformance.recording import Recording

MOST_SLICES = 400


def difference_of_outcomes(way: str, outcomes: Outcomes, plain: Outcomes) -> str | None:
    """Return the first request for which a way ends differently, None when there is none."""
    for field in fields(Outcomes):
        ours, theirs = getattr(outcomes, field.name), getattr(plain, field.name)
        if not np.array_equal(ours, theirs):
            i = int(np.flatnonzero(ours != theirs)[0])
            return f"{way}: request {i}, {field.name}: {ours[i]}, step by step {theirs[i]}"
    return None


def difference_of_tokens(way: str, tokens: tuple[Int64s, Int64s], plain: tuple[Int64s, Int64s]) -> str | None:
    """Return the first token that a way gives to another request or at another time, None when none."""
    if len(tokens[0]) != len(plain[0]):
        return f"{way}: {len(tokens[0])} tokens, step by step {len(plain[0])}"
    differ = (tokens[0] != plain[0]) | (tokens[1] != plain[1])
    if differ.any():
        i = int(np.flatnonzero(differ)[0])
        ours, theirs = [(int(request[i]), int(time_us[i])) for request, time_us in (tokens, plain)]
        return f"{way}: token {i} is {ours}, step by step {theirs}"
    return None


def run_step_by_step(recording: Recording) -> Simulation:
    """Return the recording's case, taken step by step in one call, with its tokens."""
    return simulate(recording.requests, recording.config, recording.latency, coalesce=False, record="tokens")


def difference_of_jumps(recording: Recording) -> str | None:
    """Return where the engine that jumps differs from the one that takes every step."""
    plain = run_step_by_step(recording)
    for record in ("none", "tokens"):
        jumped = simulate(recording.requests, recording.config, recording.latency, record=record)
        found = difference_of_outcomes("coalesced", jumped.outcomes, plain.outcomes)
        if found is not None:
            return found
        if jumped.num_steps != plain.num_steps:
            return f"coalesced: {jumped.num_steps} steps, step by step {plain.num_steps}"
    return difference_of_tokens("coalesced", jumped.tokens(), plain.tokens())


def cuts_of(recording: Recording) -> list[int]:
    """Return times at which an engine is stopped: the recorded steps' starts, a little later, and ends."""
    ends = np.array([step["t_end"] for step in recording.steps], np.int64)
    starts = np.array([step["t"] for step in recording.steps], np.int64)
    times = np.unique(np.concatenate([starts, starts + 1, (starts + ends) // 2, ends]))
    chosen = np.random.default_rng(len(times)).permutation(len(times))[:MOST_SLICES]
    return [int(time_us) for time_us in np.sort(times[chosen])]


def submit(engine: Engine, recording: Recording, number: int) -> None:
    """Hand the engine one of the recording's requests."""
    requests = recording.requests
    start, end = requests.hash_offsets[number], requests.hash_offsets[number + 1]
    engine.submit(
        arrival_us=int(requests.arrival_us[number]),
        prompt_tokens=int(requests.prompt_tokens[number]),
        output_tokens=int(requests.output_tokens[number]),
        priority=int(requests.priority[number]),
        hash_ids=requests.hash_ids[start:end].tolist(),
        max_tokens=None if requests.max_tokens is None else int(requests.max_tokens[number]),
    )


def difference_when_sliced(recording: Recording, *, submitted_at_once: bool) -> str | None:
    """Return where an engine that is fed and advanced bit by bit differs, None when it does not.

    ``submitted_at_once``: it holds all requests from the start; otherwise it gets each at its arrival.
    """
    way = "sliced" if submitted_at_once else "submitted singly"
    plain = run_step_by_step(recording)
    engine = Engine(recording.config, recording.latency, record="tokens")
    arrivals = [int(time_us) for time_us in recording.requests.arrival_us]
    num_submitted = 0
    pieces = []
    for cut in sorted({*cuts_of(recording), *arrivals}):
        while num_submitted < len(arrivals) and (submitted_at_once or arrivals[num_submitted] <= cut):
            engine.advance(arrivals[num_submitted] if not submitted_at_once else 0)
            submit(engine, recording, num_submitted)
            num_submitted += 1
        engine.advance(cut)
        pieces.append(engine.take_tokens())
    engine.advance()
    pieces.append(engine.take_tokens())
    outcomes = engine.outcomes()
    outcomes.status[outcomes.status == Status.UNFINISHED] = Status.STUCK
    found = difference_of_outcomes(way, outcomes, plain.outcomes)
    if found is None and engine.view().num_steps != plain.num_steps:
        found = f"{way}: {engine.view().num_steps} steps, step by step {plain.num_steps}"
    tokens = (np.concatenate([piece[0] for piece in pieces]), np.concatenate([piece[1] for piece in pieces]))
    return found or difference_of_tokens(way, tokens, plain.tokens())


def difference_of_gaps(recording: Recording) -> str | None:
    """Return where inter-token latencies from spans differ from the tokens', None when they do not."""
    spans = simulate(recording.requests, recording.config, recording.latency, record="spans")
    ours = spans.inter_token_latencies()
    request, time_us = run_step_by_step(recording).tokens()
    pooled = []
    for number in range(len(recording.requests)):
        times = time_us[request == number]
        gaps = np.array([later - earlier for earlier, later in pairwise(times)], np.int64)
        pooled.append(gaps)
        if len(gaps) == 0:
            continue
        expected = (float(gaps.mean()), float(np.percentile(gaps, 99)))
        found = (float(ours.mean_us[number]), float(ours.p99_us[number]))
        if not np.allclose(found, expected, rtol=0, atol=0.01):
            return f"spans: request {number}, mean and p99 of its gaps {found}, of its tokens {expected}"
    values, counts = np.unique(np.concatenate(pooled), return_counts=True)
    if not (np.array_equal(values, ours.gaps_us) and np.array_equal(counts, ours.counts)):
        return "spans: the pooled gaps differ from the tokens'"
    return None


def never_binds(recording: Recording) -> bool:
    """Return whether the KV cache was so large that not even a block's content was ever thrown away."""
    requests, config = recording.requests, recording.config
    tokens = requests.prompt_tokens + requests.output_tokens
    smallest = min(
        [config.block_size, *(group.block_size or config.block_size for group in config.kv_cache_groups)]
    )
    most = int((tokens // smallest + 1).sum()) * config.num_kv_cache_groups
    return most + int(config.watermark * config.num_gpu_blocks) < config.num_gpu_blocks - 1


def difference_when_unbounded(recording: Recording) -> str | None:
    """Return where an engine without a bound on its KV cache differs though the bound never mattered."""
    if not never_binds(recording):
        return None
    config = replace(recording.config, num_gpu_blocks=UNBOUNDED)
    plain = run_step_by_step(recording)
    for coalesce in (True, False):
        free = simulate(recording.requests, config, recording.latency, coalesce=coalesce)
        found = difference_of_outcomes("unbounded", free.outcomes, plain.outcomes)
        if found is not None:
            return found
    return None


def difference_of_ways(recording: Recording) -> str | None:
    """Return the first difference between any two ways, None when all agree."""
    return (
        difference_of_jumps(recording)
        or difference_when_sliced(recording, submitted_at_once=True)
        or difference_when_sliced(recording, submitted_at_once=False)
        or difference_of_gaps(recording)
        or difference_when_unbounded(recording)
    )
