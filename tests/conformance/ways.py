"""Other ways through the engine, each of which must end where the plain one does.

The plain way is one call that takes every step singly; it is what is compared with vLLM. The engine can also
jump over equal steps, be advanced bit by bit, serve requests that come by and by, and go without a KV cache's bound.
"""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np

from sim import Engine, Outcomes, Simulation, Status, simulate
from sim.cluster import ClusterConfig, LiveCluster, Pool
from sim.config import UNBOUNDED
from sim.requests import Int64s
from tests.conformance.recording import Recording
from tests.examples import few_or_all

MOST_SLICES = few_or_all(60, 400)
LONG_AFTER_US = 10**13


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


def difference_when_sliced(recording: Recording) -> str | None:
    """Return where an engine that is advanced bit by bit differs, None when it does not."""
    plain = run_step_by_step(recording)
    engine = Engine(recording.requests, recording.config, recording.latency, record="tokens")
    for cut in cuts_of(recording):
        engine.advance(cut)
    engine.advance()
    outcomes = engine.outcomes()
    outcomes.status[outcomes.status == Status.UNFINISHED] = Status.STUCK
    found = difference_of_outcomes("sliced", outcomes, plain.outcomes)
    if found is None and engine.view().num_steps != plain.num_steps:
        found = f"sliced: {engine.view().num_steps} steps, step by step {plain.num_steps}"
    return found or difference_of_tokens("sliced", engine.written().tokens(), plain.tokens())


def submit(live: LiveCluster, recording: Recording, number: int) -> None:
    """Hand a live server one of the recording's requests just before it is due."""
    requests = recording.requests
    start, end = requests.hash_offsets[number], requests.hash_offsets[number + 1]
    live.submit(
        int(requests.arrival_us[number]) - 1,
        prompt_tokens=int(requests.prompt_tokens[number]),
        output_tokens=int(requests.output_tokens[number]),
        priority=int(requests.priority[number]),
        hash_ids=requests.hash_ids[start:end].tolist(),
    )


def difference_when_served(recording: Recording) -> str | None:
    """Return where a server that gets each request when it comes differs; no early ends, adapters, grammars, images."""
    requests, config = recording.requests, recording.config
    asked = (requests.max_tokens, requests.adapter, requests.is_guided, requests.images)
    if any(column is not None for column in asked):
        return None
    plain = run_step_by_step(recording)
    live = LiveCluster(
        ClusterConfig(pools=(Pool(engine=config, latency=recording.latency),)),
        num_keys=int(requests.hash_ids.max(initial=0)) + 1,
        num_rows=len(requests),
    )
    arrivals, tokens, num_submitted = [int(time_us) for time_us in requests.arrival_us], [], 0
    for cut in sorted({*cuts_of(recording), *arrivals}):
        while num_submitted < len(arrivals) and arrivals[num_submitted] <= cut:
            submit(live, recording, num_submitted)
            num_submitted += 1
        tokens += live.tokens(cut)
    tokens += live.tokens(LONG_AFTER_US)
    each = [live.outcome(number) for number in range(len(requests))]
    outcomes = Outcomes(
        **{
            field.name: np.concatenate([getattr(of_one, field.name) for of_one in each])
            for field in fields(Outcomes)
        }
    )
    outcomes.status[outcomes.status == Status.UNFINISHED] = Status.STUCK
    is_stuck = (
        outcomes.status == Status.STUCK
    )  # preempted until the clock's end, which who is refused later moves
    outcomes.preempted_us[is_stuck] = plain.outcomes.preempted_us[is_stuck]
    found = difference_of_outcomes("served", outcomes, plain.outcomes)
    num_steps = live.views(LONG_AFTER_US)[0].num_steps
    if found is None and num_steps != plain.num_steps:
        found = f"served: {num_steps} steps, step by step {plain.num_steps}"
    request, time_us = plain.tokens()
    order = np.argsort(time_us, kind="stable")  # a server hands them out in the order in which they are due
    ours = np.array(tokens, np.int64).reshape(-1, 2)
    return found or difference_of_tokens("served", (ours[:, 0], ours[:, 1]), (request[order], time_us[order]))


def difference_of_gaps(recording: Recording) -> str | None:
    """Return where inter-token latencies from spans differ from the tokens', None when they do not."""
    if recording.config.num_speculative_tokens:
        return None  # tokens given in one step share the gap before them
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
    if recording.config.has_native_offloading or not never_binds(recording):
        return None  # without a bound nothing is stored
    config = replace(recording.config, num_gpu_blocks=UNBOUNDED)
    plain = run_step_by_step(recording)
    for coalesce in (True, False):
        free = simulate(recording.requests, config, recording.latency, coalesce=coalesce)
        found = difference_of_outcomes("unbounded", free.outcomes, plain.outcomes)
        if found is not None:
            return found
    return None


def difference_of_ways(recording: Recording, *, with_jumps: bool = True) -> str | None:
    """Return the first difference between any two ways, None when all agree."""
    return (
        (difference_of_jumps(recording) if with_jumps else None)
        or difference_when_sliced(recording)
        or difference_when_served(recording)
        or difference_of_gaps(recording)
        or difference_when_unbounded(recording)
    )
