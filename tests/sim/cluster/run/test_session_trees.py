"""Sessions whose requests wait for any number of answers, against a closed loop that is a page of Python."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from sim import Blackbox, EngineConfig, Requests
from sim.cluster import ClusterConfig, ClusterWork, Pool, RoundRobin, simulate_cluster, trees

STEP_US = 7001


@dataclass
class Server:
    """A server whose every step takes as long and that has room for all: prompts are computed in one step."""

    free_us: int = 0
    waiting: list[tuple[int, int]] = field(default_factory=list)  # (arrival, request)
    left: dict[int, int] = field(default_factory=dict)  # tokens still to come


def by_hand(
    arrival_us: list[int],
    output: list[int],
    think_us: list[int],
    awaited: list[set[int]],
    session: list[int],
    *,
    num_servers: int,
    concurrency: int | None,
) -> tuple[list[int], list[int]]:
    """Return when each request arrived and had its last token."""
    n = len(output)
    servers = [Server() for _ in range(num_servers)]
    missing = [set(each) for each in awaited]
    roots = [row for row in range(n) if not missing[row]]
    held = [] if concurrency is None else roots[concurrency:]
    arrivals = [(arrival_us[row], row) for row in roots if row not in held]
    heapq.heapify(arrivals)
    came, ended, num_routed = [-1] * n, [-1] * n, 0
    open_of = {each: session.count(each) for each in session}
    while arrivals or any(server.waiting or server.left for server in servers):
        # the next step that can start, and whether somebody comes before it does
        starts = [
            max(server.free_us, min(server.waiting)[0] if not server.left else 0)
            if server.waiting or server.left
            else None
            for server in servers
        ]
        known = [(start, number) for number, start in enumerate(starts) if start is not None]
        if arrivals and (not known or arrivals[0][0] <= min(known)[0]):
            time_us, row = heapq.heappop(arrivals)
            came[row] = time_us
            servers[num_routed % num_servers].waiting.append((time_us, row))
            num_routed += 1
            continue
        start, number = min(known)
        server = servers[number]
        for each in [each for each in server.waiting if each[0] <= start]:
            server.waiting.remove(each)
            server.left[each[1]] = output[each[1]]
        server.free_us = start + STEP_US
        for row in sorted(server.left):
            server.left[row] -= 1
            if server.left[row]:
                continue
            del server.left[row]
            ended[row] = server.free_us
            for other in range(n):
                if row in missing[other]:
                    missing[other].discard(row)
                    if not missing[other]:
                        heapq.heappush(arrivals, (server.free_us + think_us[other], other))
            open_of[session[row]] -= 1
            if open_of[session[row]] == 0 and held:
                first = held.pop(0)
                heapq.heappush(arrivals, (server.free_us + think_us[first], first))
    return came, ended


def drawn_trees(rng: random.Random) -> tuple[list[int], list[set[int]]]:
    """Return each request's session and the requests that it waits for: branches and joins."""
    session, awaited = [], []
    for number in range(rng.randint(2, 8)):
        first = len(session)
        for place in range(rng.randint(1, 9)):
            before = list(range(first, first + place))
            waits = set(rng.sample(before, min(len(before), rng.choice([1, 1, 1, 2, 3]))))
            session.append(number)
            awaited.append(waits)
    return session, awaited


@pytest.mark.parametrize("num_servers", [1, 4])
@pytest.mark.parametrize("concurrency", [None, 2])
@pytest.mark.parametrize("seed", range(12))
def test_trees_with_branches_and_joins_are_a_closed_loop_to_the_microsecond(
    seed: int, concurrency: int | None, num_servers: int
) -> None:
    rng = random.Random(f"{seed} {concurrency} {num_servers}")
    session, awaited = drawn_trees(rng)
    n = len(session)
    arrival_us = [rng.randrange(100_000) for _ in range(n)]
    output, think_us = [rng.randint(1, 12) for _ in range(n)], [rng.randrange(1, 90_000) for _ in range(n)]
    pairs = [(row, other) for row in range(n) for other in awaited[row]]
    plan = trees(
        np.array(session),
        waiting=np.array([row for row, _ in pairs], np.int64),
        awaited=np.array([other for _, other in pairs], np.int64),
        think_us=np.array(think_us),
        concurrency=concurrency,
    )
    engine = EngineConfig(
        max_num_seqs=256, max_num_batched_tokens=8192, max_model_len=4096, async_scheduling=False
    )
    pool = Pool(engine=engine, latency=Blackbox(beta0=STEP_US), instances=num_servers)
    requests = Requests(
        arrival_us=np.array(arrival_us),
        prompt_tokens=np.array([rng.randint(1, 30) for _ in range(n)]),
        output_tokens=np.array(output),
        priority=np.zeros(n, np.int64),
        hash_offsets=np.zeros(n + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )
    found = simulate_cluster(
        ClusterWork(requests=requests, session=np.array(session), clients=plan),
        ClusterConfig(pools=(pool,), routing=RoundRobin()),
    )
    came, ended = by_hand(
        arrival_us, output, think_us, awaited, session, num_servers=num_servers, concurrency=concurrency
    )
    assert found.outcomes.arrival_us.tolist() == came
    assert found.outcomes.last_token_us.tolist() == ended
