"""Transfers that share links, against a twin that moves every byte of every microsecond."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster.transfer.disaggregation_config import Disaggregation
from sim.cluster.transfer.kv_links import (
    FOREVER,
    NEVER,
    Links,
    cut_off,
    is_moving,
    move_on,
    new_links,
    next_change_us,
    start_flow,
    take_ended,
)
from sim.jit.compile import engine_entry
from tests.examples import examples

UNITS = 1 << 16


@engine_entry
def start(links: Links, request: int, sender: int, receiver: int, num_blocks: int, time_us: int) -> None:
    start_flow(links, request, sender, receiver, num_blocks, time_us)


@engine_entry
def move(links: Links, time_us: int) -> None:
    move_on(links, time_us)


@engine_entry
def ended(links: Links) -> int:
    return take_ended(links)


@engine_entry
def cut(links: Links, request: int, time_us: int) -> bool:
    if not is_moving(links, request):
        return False
    cut_off(links, request, time_us)
    return True


@engine_entry
def change_us(links: Links) -> int:
    return next_change_us(links)


@dataclass
class Flow:
    sender: int
    receiver: int
    begins_us: int
    remaining: int
    rate: int


@dataclass
class Twin:
    """Moves everything one microsecond at a time."""

    settings: Disaggregation
    is_blis: bool
    flows: dict[int, Flow] = field(default_factory=dict)
    ended_us: dict[int, int] = field(default_factory=dict)

    def start(self, request: int, sender: int, receiver: int, num_bytes: int, now_us: int) -> None:
        rate = round(self.settings.kv_bandwidth_gbps * 1000 * UNITS)
        if self.is_blis and self.settings.contention:
            rate //= len(self.flows) + 1
        begins_us = now_us + self.settings.kv_base_latency_us
        self.flows[request] = Flow(sender, receiver, begins_us, num_bytes * UNITS, rate)

    def end(self, now_us: int) -> None:
        """Take away whoever has nothing left to move."""
        for request, flow in list(self.flows.items()):
            if flow.begins_us <= now_us and flow.remaining <= 0:
                self.ended_us[request] = now_us
                del self.flows[request]

    def pass_one_us(self, now_us: int) -> None:
        moving = [flow for flow in self.flows.values() if flow.begins_us <= now_us]
        rates = [flow.rate for flow in moving]
        if self.settings.contention and not self.is_blis:
            bandwidth = round(self.settings.kv_bandwidth_gbps * 1000 * UNITS)
            rates = fair_rates([(flow.sender, flow.receiver) for flow in moving], bandwidth)
        for flow, rate in zip(moving, rates, strict=True):
            flow.remaining -= rate


def fair_rates(flows: list[tuple[int, int]], bandwidth: int) -> list[int]:
    """Return the max-min fair rate of each (sender, receiver): fill the tightest link, take it away, go on."""
    rates: dict[int, int] = {}
    users = {
        link: {i for i, ends in enumerate(flows) if (which, ends[which]) == link}
        for which in (0, 1)
        for link in {(which, ends[which]) for ends in flows}
    }
    left = dict.fromkeys(users, bandwidth)
    while users:
        shares = {link: left[link] // len(those) for link, those in users.items()}
        least = min(shares.values())
        bound = set().union(*(users[link] for link, share in shares.items() if share == least))
        rates |= dict.fromkeys(bound, max(1, least))
        for link in list(users):
            left[link] -= least * len(users[link] & bound)
            users[link] -= bound
            if not users[link]:
                del users[link]
    return [rates[i] for i in range(len(flows))]


@examples(200)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_each_transfer_has_a_link_that_is_full_and_on_which_none_is_faster(
    flows: list[tuple[int, int]],
) -> None:
    """What max-min fair means: nobody can have more without taking it from one who has no more."""
    bandwidth = 10**9
    rates = fair_rates(flows, bandwidth)
    for which in (0, 1):
        for end in range(4):
            assert (
                sum(rate for rate, ends in zip(rates, flows, strict=True) if ends[which] == end) <= bandwidth
            )
    for rate, ends in zip(rates, flows, strict=True):
        binds = False
        for which in (0, 1):
            there = [r for r, others in zip(rates, flows, strict=True) if others[which] == ends[which]]
            is_full = sum(there) > bandwidth - len(there)  # but for what rounding leaves
            binds = binds or (is_full and rate >= max(there) - len(there))
        assert binds


def test_what_a_slow_receiver_leaves_goes_to_the_sender_s_other_transfers() -> None:
    """Three come into one receiver, one of them from a sender with another transfer: that one has two thirds."""
    assert fair_rates([(0, 0), (1, 0), (2, 0), (2, 1)], 999) == [333, 333, 333, 666]
    settings = Disaggregation(kv_bandwidth_gbps=1.0, kv_base_latency_us=0, kv_bytes_per_token=1000)
    links = new_links(settings, num_requests=4, num_instances=6, block_size=16)
    for request, (sender, receiver) in enumerate([(0, 3), (1, 3), (2, 3), (2, 4)]):
        start(links, request, sender, receiver, 10, 0)
    let_end(links, FOREVER)
    assert links.flows["ended_us"].tolist()[3] == 240
    assert max(links.flows["ended_us"]) == 481  # a third each, rounded down


@examples(200)
@given(
    drawn=st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 2), st.integers(3, 5), st.integers(0, 12)), max_size=14
    ),
    gbps=st.sampled_from([0.016, 0.1, 0.333, 25.0]),
    base_us=st.sampled_from([0, 0, 1, 17]),
    contention=st.booleans(),
    is_blis=st.booleans(),
)
def test_fair_shares_are_those_of_a_twin_that_moves_each_microsecond(
    drawn: list[tuple[int, int, int, int]], gbps: float, base_us: int, contention: bool, is_blis: bool
) -> None:
    settings = Disaggregation(
        kv_bandwidth_gbps=gbps, kv_base_latency_us=base_us, contention=contention, kv_bytes_per_token=21
    )
    links = new_links(settings, num_requests=len(drawn) or 1, num_instances=6, block_size=16, is_blis=is_blis)
    twin = Twin(settings, is_blis)
    todo = sorted((at_us, number) for number, (at_us, *_) in enumerate(drawn))
    for now_us in range(6000):
        twin.end(now_us)
        while todo and todo[0][0] == now_us:
            _, number = todo.pop(0)
            let_end(links, now_us)
            _, sender, receiver, num_blocks = drawn[number]
            start(links, number, sender, receiver, num_blocks, now_us)
            twin.start(number, sender, receiver, num_blocks * 16 * 21, now_us)
            twin.end(now_us)
            let_end(links, now_us)
        if not todo and not twin.flows:
            break
        twin.pass_one_us(now_us)
    let_end(links, FOREVER)
    assert {i: int(us) for i, us in enumerate(links.flows["ended_us"]) if us != NEVER} == twin.ended_us
    assert int(links.counts["num_started"][0]) == int(links.counts["num_ended"][0]) == len(drawn)
    assert int(links.counts["num_flows"][0]) == int(links.counts["num_pairs"][0]) == 0


@examples(200)
@given(
    drawn=st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 2), st.integers(3, 5), st.integers(0, 12)),
        min_size=1,
        max_size=14,
    ),
    cuts=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 13)), max_size=8),
    gbps=st.sampled_from([0.016, 0.1, 0.333, 25.0]),
    base_us=st.sampled_from([0, 0, 1, 17]),
    contention=st.booleans(),
    is_blis=st.booleans(),
)
def test_what_is_cut_off_leaves_its_share_to_the_others_as_in_the_twin(
    drawn: list[tuple[int, int, int, int]],
    cuts: list[tuple[int, int]],
    gbps: float,
    base_us: int,
    contention: bool,
    is_blis: bool,
) -> None:
    settings = Disaggregation(
        kv_bandwidth_gbps=gbps, kv_base_latency_us=base_us, contention=contention, kv_bytes_per_token=21
    )
    links = new_links(settings, num_requests=len(drawn), num_instances=6, block_size=16, is_blis=is_blis)
    twin = Twin(settings, is_blis)
    todo = sorted((at_us, number) for number, (at_us, *_) in enumerate(drawn))
    ends = sorted((at_us, number % len(drawn)) for at_us, number in cuts)
    num_cut = 0
    for now_us in range(6000):
        twin.end(now_us)
        while todo and todo[0][0] == now_us:
            _, number = todo.pop(0)
            let_end(links, now_us)
            _, sender, receiver, num_blocks = drawn[number]
            start(links, number, sender, receiver, num_blocks, now_us)
            twin.start(number, sender, receiver, num_blocks * 16 * 21, now_us)
            twin.end(now_us)
            let_end(links, now_us)
        while ends and ends[0][0] == now_us:
            _, number = ends.pop(0)
            let_end(links, now_us)
            is_cut = twin.flows.pop(number, None) is not None
            assert cut(links, number, now_us) == is_cut
            num_cut += is_cut
        if not todo and not twin.flows:
            break
        twin.pass_one_us(now_us)
    let_end(links, FOREVER)
    assert {i: int(us) for i, us in enumerate(links.flows["ended_us"]) if us != NEVER} == twin.ended_us
    counts = links.counts[0]
    assert (counts["num_started"], counts["num_cut_off"]) == (len(drawn), num_cut)
    assert counts["num_ended"] == len(drawn) - num_cut
    assert counts["num_flows"] == counts["num_pairs"] == 0


def let_end(links: Links, until_us: int) -> None:
    """Let everything happen by ``until_us``, one change after another."""
    while (at_us := change_us(links)) != FOREVER and at_us <= until_us:
        move(links, at_us)
        while ended(links) != NEVER:
            pass


def test_two_that_leave_one_sender_take_twice_as_long_and_a_third_elsewhere_does_not() -> None:
    settings = Disaggregation(kv_bandwidth_gbps=1.0, kv_base_latency_us=10, kv_bytes_per_token=1000)
    links = new_links(settings, num_requests=3, num_instances=6, block_size=16)
    for request, (sender, receiver) in enumerate([(0, 3), (0, 4), (1, 5)]):
        start(links, request, sender, receiver, 10, 0)
    let_end(links, FOREVER)
    assert np.array_equal(links.flows["ended_us"], [10 + 320, 10 + 320, 10 + 160])
