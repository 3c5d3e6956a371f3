"""Random fleets, requests and happenings: what routers are compared on."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sim import Requests
from sim.cluster.fleet import ACTIVE_ADAPTER, WAITING_ADAPTER, new_fleet, request_table, set_candidates
from sim.cluster.routing.router_state import new_router, with_room_for
from sim.cluster.routing.routing_policies import RoutingPolicy, Weighted
from sim.cluster.routing.weighted import compares_alone
from tests.sim.cluster.compiled_calls import NEEDS_ROOM, decide, finish, refresh, settle, start_decoding
from tests.sim.cluster.reference import Instance, Prompt, World, rule_of

NUM_ADAPTERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Happenings:
    """What a comparison draws; equal ids of two prompts at one place are equal up to there, if ``chained``."""

    seed: int
    num_instances: int
    num_requests: int
    block_size: int
    alphabet: int
    chained: bool
    most_in_flight: int
    is_blis: bool = False


class Comparison:
    """A router and its reference side by side in one random world."""

    def __init__(self, policy: RoutingPolicy, drawn: Happenings) -> None:
        self.rng, self.drawn = random.Random(drawn.seed), drawn
        self.by_number = drawn.seed % 2 == 1
        order = self.some_of(drawn.num_instances)
        self.world = World(
            instances=[Instance() for _ in order],
            order=order,
            block_size=drawn.block_size,
            seed=drawn.seed,
            is_blis=drawn.is_blis,
        )
        self.fleet = new_fleet(
            len(order),
            block_size=drawn.block_size,
            order=order,
            num_adapters=NUM_ADAPTERS,
            keeps_loads=drawn.seed % 2 == 1,
            keeps_shelves=isinstance(policy, Weighted) and compares_alone(policy),
        )
        self.prompts = self.draw_prompts()
        self.rule = rule_of(self.world, policy)
        self.router = new_router(
            policy,
            self.fleet,
            self.table,
            seed=drawn.seed,
            compatibility="blis" if drawn.is_blis else "vllm",
        )
        self.where: dict[int, int] = {}
        self.prefilling: set[int] = set()
        self.now_us = 0

    def some_of(self, num: int) -> list[int]:
        """Draw candidates, in any order or by their numbers."""
        some = self.rng.sample(range(self.drawn.num_instances), num)
        return sorted(some) if self.by_number else some

    def draw_prompts(self) -> list[Prompt]:
        """Draw prompts that often begin alike, and lay out the table of them."""
        rng, drawn = self.rng, self.drawn
        chain: dict[tuple[int, ...], int] = {}
        texts: list[list[int]] = []
        all_ids, prompts = [], []
        for number in range(drawn.num_requests):
            text = [rng.randrange(drawn.alphabet) for _ in range(rng.randrange(9))]
            if texts and rng.random() < 0.5:
                text = rng.choice(texts)[: rng.randrange(1, 12)] + text
            texts.append(text)
            ids = [chain.setdefault(tuple(text[: k + 1]), len(chain)) for k in range(len(text))]
            ids = ids if drawn.chained else text
            tokens = max(0, len(ids) * drawn.block_size + rng.randrange(-2, 2 * drawn.block_size))
            num_blocks = tokens // drawn.block_size
            all_ids.append(ids)
            prompts.append(
                Prompt(
                    number=number,
                    tokens=tokens,
                    ids=ids[:num_blocks],
                    num_blocks=num_blocks,
                    session=rng.randrange(-1, 5),
                    adapter=rng.randrange(-1, NUM_ADAPTERS),
                )
            )
        self.table = request_table(
            requests_with(all_ids, [prompt.tokens for prompt in prompts]),
            session=np.array([prompt.session for prompt in prompts], np.int64),
            adapter=np.array([prompt.adapter for prompt in prompts], np.int64),
        )
        return prompts

    def run(self, *, follows: Callable[[int], int] = lambda chosen: chosen) -> None:
        """Decide about every request on both sides; ``follows`` says who gets it after what was chosen."""
        for prompt in self.prompts:
            self.let_things_happen(prompt)
            time_us = prompt.number * 1000
            self.now_us = time_us
            expected = self.rule.choose(prompt, time_us)
            while (
                chosen := decide(self.router, self.fleet, self.table, prompt.number, time_us)
            ) == NEEDS_ROOM:
                self.router = with_room_for(self.router, len(prompt.ids))
            assert chosen == expected, f"request {prompt.number}: {chosen} instead of {expected}"
            self.route(prompt, follows(chosen))

    def route(self, prompt: Prompt, to: int) -> None:
        settle(self.router, self.fleet, self.table, prompt.number, to)
        self.rule.routed(prompt, to)
        self.world.instances[to].in_flight.append(prompt.number)
        self.where[prompt.number] = to
        self.prefilling.add(prompt.number)

    def let_things_happen(self, prompt: Prompt) -> None:
        """Let requests get tokens and end, snapshots be taken, candidates change."""
        rng = self.rng
        while self.where and (rng.random() < 0.4 or len(self.where) > self.drawn.most_in_flight):
            self.end(rng.choice(sorted(self.where)))
        for number in [number for number in sorted(self.prefilling) if rng.random() < 0.3]:
            self.give_first_token(number)
        if rng.random() < 0.2:
            self.take_snapshot()
        if rng.random() < 0.05:
            kept = self.some_of(rng.randint(1, self.drawn.num_instances))
            self.world.order[:] = kept
            set_candidates(self.fleet, kept)
        self.fill_caches(prompt)

    def give_first_token(self, number: int) -> None:
        start_decoding(self.router, self.table, number, self.where[number])
        self.rule.first_token(self.prompts[number], self.where[number])
        self.prefilling.discard(number)

    def end(self, number: int) -> None:
        if number in self.prefilling:
            self.give_first_token(number)
        at = self.where.pop(number)
        finish(self.router, self.fleet, self.table, number, at, self.now_us)
        self.world.instances[at].in_flight.remove(number)
        self.rule.finished(self.prompts[number], at)

    def take_snapshot(self) -> None:
        rng = self.rng
        for at, row in zip(self.world.instances, self.fleet.instances, strict=True):
            at.waiting, at.running = rng.choice([0, 0, 1, 5, 200]), rng.randrange(4)
            at.kv_usage = rng.choice([0.0, 0.5, 0.75, round(rng.random(), 3)])
            row.num_waiting, row.num_running, row.kv_usage = at.waiting, at.running, at.kv_usage
        self.fleet.shelves["is_outdated"] = 1
        refresh(self.router, self.fleet)
        self.rule.snapshot()

    def fill_caches(self, prompt: Prompt) -> None:
        """Say what each instance has of this prompt's blocks, and of adapters."""
        rng = self.rng
        is_cold = rng.random() < 0.3
        for i, at in enumerate(self.world.instances):
            at.cached = 0 if is_cold else rng.randint(0, prompt.num_blocks)
            at.host = rng.randrange(2)
            at.max_adapters = rng.randrange(3)
            states = {a: rng.choice([0, WAITING_ADAPTER, ACTIVE_ADAPTER]) for a in range(NUM_ADAPTERS)}
            at.adapters = {a: state for a, state in states.items() if state}
            row = self.fleet.instances[i]
            row.num_cached_blocks, row.num_host_blocks = at.cached, at.host
            row.max_adapters, row.num_adapters = at.max_adapters, len(at.adapters)
            self.fleet.adapters[i] = [states[a] for a in range(NUM_ADAPTERS)]


def requests_with(ids: list[list[int]], tokens: list[int]) -> Requests:
    """Return requests with these contents; a router looks at nothing else of them."""
    zeros = np.zeros(len(ids), np.int64)
    return Requests(
        arrival_us=zeros,
        prompt_tokens=np.array(tokens, np.int64),
        output_tokens=zeros + 1,
        priority=zeros,
        hash_offsets=np.concatenate([[0], np.cumsum([len(some) for some in ids])]).astype(np.int64),
        hash_ids=np.array([one for some in ids for one in some], np.int64),
    )
