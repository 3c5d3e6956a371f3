"""Batches of rollouts against servers that are half a page of Python, to the microsecond."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest

from replay.rollouts.prompt_samples import Samples
from replay.rollouts.rollout_batch import SHARES, BatchResult, batch_result, simulate_batch
from replay.rollouts.rollouts import Rollouts, RolloutSettings, rollouts_of
from sim import Blackbox, EngineConfig
from sim.cluster import ClusterConfig, ClusterWork, Pool, RoundRobin, simulate_cluster
from tests.examples import few_or_all


@dataclass
class Answer:
    """A sample at a server by hand: when it got its seat, and when each of its tokens was there."""

    scheduled_us: int = -1
    token_us: list[int] = field(default_factory=list)


def served(outputs: list[int], *, seats: int, step_us: list[int]) -> tuple[list[Answer], list[int]]:
    """Return the answers of servers that take turns with samples, and when each server's first seat stays empty.

    A server's every step takes as long; it takes in who waits as long as there are seats.
    """
    answers, given_back = [Answer() for _ in outputs], []
    for number, each_us in enumerate(step_us):
        waiting = list(range(number, len(outputs), len(step_us)))
        running: list[int] = []
        if not waiting:
            continue
        now, first, ended = 0, -1, False
        while waiting or running:
            while waiting and len(running) < seats:
                row = waiting.pop(0)
                answers[row].scheduled_us = now
                running.append(row)
            if not waiting and len(running) < seats and ended and first < 0:
                first = now
            now += each_us
            for row in list(running):
                answers[row].token_us.append(now)
                if len(answers[row].token_us) == outputs[row]:
                    running.remove(row)
                    ended = True
        given_back.append(now if first < 0 else first)
    return answers, given_back


@dataclass
class Sample:
    """What is asked of the servers by hand."""

    prompt: int
    output: int
    generated: int = 0


@dataclass
class ByHand:
    """A batch by hand."""

    end_us: int
    times_us: list[int]
    answered: list[int]
    idle: Fraction
    tail_idle: Fraction
    tail_us: int
    generated: list[int]


def batch_by_hand(samples: list[Sample], wanted: int, *, seats: int, step_us: list[int]) -> ByHand:
    answers, given_back = served([s.output - s.generated for s in samples], seats=seats, step_us=step_us)
    ends = sorted(each.token_us[-1] for each in answers)
    end_us = ends[wanted - 1]
    tail_us = min(*given_back, end_us)

    def idle_us(from_us: int) -> int:
        """Seat by seat and microsecond by microsecond would be the same sum."""
        held = 0
        for each in answers:
            begin, end = max(each.scheduled_us, from_us), min(each.token_us[-1], end_us)
            held += max(0, end - begin)
        return seats * len(step_us) * (end_us - from_us) - held

    whole = seats * len(step_us) * end_us
    return ByHand(
        end_us=end_us,
        times_us=[ends[math.ceil(Fraction(str(share)) * len(ends)) - 1] for share in SHARES],
        answered=[row for row, each in enumerate(answers) if each.token_us[-1] <= end_us],
        idle=Fraction(idle_us(0), whole),
        tail_idle=Fraction(idle_us(tail_us), whole),
        tail_us=tail_us,
        generated=[sum(time <= end_us for time in each.token_us) for each in answers],
    )


def check(found: BatchResult, hand: ByHand, samples: list[Sample]) -> None:
    assert found.end_us == hand.end_us
    assert list(found.times_us) == hand.times_us
    assert found.num_answered == len(hand.answered)
    assert found.tail_us == hand.tail_us
    assert found.idle_frac == pytest.approx(float(hand.idle), abs=1e-12)
    assert found.tail_idle_frac == pytest.approx(float(hand.tail_idle), abs=1e-12)
    assert found.kept_tokens == sum(samples[row].output for row in hand.answered)


@dataclass
class Case:
    """Servers, samples and what is asked, drawn."""

    cluster: ClusterConfig
    drawn: list[list[Sample]]
    columns: list[Samples]
    settings: RolloutSettings
    seats: int
    step_us: list[int]


def drawn_case(seed: int, *, num_servers: int, **asked: object) -> Case:
    rng = random.Random(f"{seed} {num_servers}")
    seats, prompts, samples = rng.randint(1, 6), rng.randint(2, 6), rng.randint(1, 4)
    settings = RolloutSettings(
        **{
            "prompts": prompts,
            "samples": samples,
            "batch_share": rng.choice([0.5, 0.7, 0.9, 1.0]),
            "update_us": rng.choice([0, 12_345]),
            "batches": 4,
            "oversubscriptions": (1.0, 1.25, 1.5),
            "partial_share": rng.choice([None, 0.6]),
        }
        | asked  # type: ignore[arg-type]
    )
    number = settings.drawn(max((1.0, *settings.oversubscriptions)))
    # shorter than a block: no sample finds anything cached
    drawn = [
        [Sample(rng.randint(1, 15), rng.choice([1, 2, 3, 5, 9, 40])) for _ in range(number)]
        for _ in range(settings.batches)
    ]
    columns = [
        Samples(
            prompt=batch * number + np.arange(number) // samples,
            prompt_tokens=np.array([each.prompt for each in row]),
            output_tokens=np.array([each.output for each in row]),
            generated=np.zeros(number, np.int64),
        )
        for batch, row in enumerate(drawn)
    ]
    step_us = [rng.choice([7001, 9973, 5003]) for _ in range(num_servers)]
    return Case(cluster_of(step_us, seats=seats), drawn, columns, settings, seats, step_us)


def cluster_of(step_us: list[int], *, seats: int) -> ClusterConfig:
    engine = EngineConfig(
        max_num_seqs=seats, max_num_batched_tokens=8192, max_model_len=4096, async_scheduling=False
    )
    pools = tuple(
        Pool(engine=engine, latency=Blackbox(beta0=each), name=str(number))
        for number, each in enumerate(step_us)
    )
    return ClusterConfig(pools=pools, routing=RoundRobin())


CASES = [(seed, servers) for seed in range(few_or_all(4, 12)) for servers in (1, 2, 3)]


@pytest.mark.parametrize(("seed", "num_servers"), CASES)
def test_plain_and_oversubscribed_batches_are_those_by_hand(seed: int, num_servers: int) -> None:
    case = drawn_case(seed, num_servers=num_servers)
    found, settings = rollouts_of(case.columns, case.cluster, case.settings), case.settings
    number = settings.number
    ways = [(found.plain, number, math.ceil(Fraction(str(settings.batch_share)) * number))]
    for way, times in zip(found.others, settings.oversubscriptions, strict=False):
        ways.append((way, math.ceil(Fraction(str(times)) * number), number))
    for way, asked, wanted in ways:
        for result, drawn in zip(way.batches, case.drawn, strict=True):
            samples = drawn[:asked]
            hand = batch_by_hand(samples, wanted, seats=case.seats, step_us=case.step_us)
            check(result, hand, samples)
            left = set(range(asked)) - set(hand.answered)
            assert result.thrown_tokens == sum(hand.generated[row] for row in left)
            assert result.recomputed_tokens == 0
            assert result.asked_mean_tokens == pytest.approx(np.mean([each.output for each in samples]))
            kept = [samples[row].output for row in hand.answered]
            assert result.kept_mean_tokens == pytest.approx(np.mean(kept))
            full_us = (hand.end_us + settings.update_us) * number / len(kept)
            assert found.full_us(result) == pytest.approx(full_us, rel=1e-12)


@pytest.mark.parametrize(("seed", "num_servers"), CASES)
def test_partial_rollouts_are_those_by_hand(seed: int, num_servers: int) -> None:
    """What is unfinished goes first into the next batch, what it has generated in its prompt."""
    case = drawn_case(seed, num_servers=num_servers)
    settings = case.settings
    way = rollouts_of(case.columns, case.cluster, settings).others[-1]
    number = settings.number
    wanted = math.ceil(Fraction(str(settings.ends_partial)) * number)
    carried: list[Sample] = []
    for result, drawn in zip(way.batches, case.drawn, strict=True):
        samples = [*carried, *drawn[: number - len(carried)]]
        hand = batch_by_hand(samples, wanted, seats=case.seats, step_us=case.step_us)
        check(result, hand, samples)
        answers, _ = served([s.output - s.generated for s in samples], seats=case.seats, step_us=case.step_us)
        was_computed = [
            each
            for each, answer in zip(samples, answers, strict=True)
            if each.generated and answer.scheduled_us < hand.end_us
        ]
        assert result.recomputed_tokens == sum(each.prompt + each.generated for each in was_computed)
        assert result.thrown_tokens == 0
        left = [row for row in range(number) if row not in hand.answered]
        carried = [
            Sample(samples[row].prompt, samples[row].output, samples[row].generated + hand.generated[row])
            for row in left
        ]


def columns_of(found: Rollouts, place: int) -> list[BatchResult]:
    return list(found.others[place].batches)


@pytest.mark.parametrize("num_servers", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_ways_that_change_nothing_are_the_plain_one(seed: int, num_servers: int) -> None:
    asked = {"batch_share": 1.0, "oversubscriptions": (1.0,), "partial_share": 1.0}
    case = drawn_case(seed, num_servers=num_servers, **asked)
    found = rollouts_of(case.columns, case.cluster, case.settings)
    plain = list(found.plain.batches)
    assert columns_of(found, 0) == plain
    assert columns_of(found, 1) == plain
    assert all(each.end_us == each.times_us[-1] and each.thrown_tokens == 0 for each in plain)
    for way in found.others:
        assert (found.change(way).mean, found.change(way).half_width) == (0.0, 0.0)


def test_the_samples_of_a_prompt_share_its_blocks_and_what_all_have_in_common() -> None:
    """Two prompts of 40 tokens: 2 blocks of 16 each, the first of them common; three samples of each, one at a time."""
    samples = Samples(
        prompt=np.array([7, 7, 7, 9, 9, 9]),
        prompt_tokens=np.full(6, 40),
        output_tokens=np.full(6, 2),
        generated=np.array([0, 30, 0, 0, 0, 0]),
        common_tokens=20,
    )
    cluster = cluster_of([1000], seats=1)
    with_output = Samples(
        prompt=samples.prompt,
        prompt_tokens=samples.prompt_tokens,
        output_tokens=samples.generated + 2,
        generated=samples.generated,
        common_tokens=20,
    )
    batch = simulate_batch(with_output, cluster)
    assert batch.done.outcomes.num_cached_tokens.tolist() == [0, 32, 32, 16, 32, 32]
    # 40 + 30 tokens of the sample that was carried on, of which two blocks were cached
    assert batch_result(batch, wanted=6, asked_from=2, is_carried=True).recomputed_tokens == 70 - 32


@pytest.mark.parametrize("seed", range(6))
def test_idle_seats_are_those_that_no_step_had_where_the_cache_preempts(seed: int) -> None:
    rng = random.Random(seed)
    engine = EngineConfig(
        max_num_seqs=6,
        max_num_batched_tokens=512,
        max_model_len=512,
        num_gpu_blocks=24,
        block_size=16,
        async_scheduling=False,
    )
    pool = Pool(engine=engine, latency=Blackbox(beta0=5003, beta1=7))
    cluster = ClusterConfig(pools=(pool,), routing=RoundRobin())
    n = 14
    samples = Samples(
        prompt=np.arange(n),
        prompt_tokens=np.array([rng.randint(10, 60) for _ in range(n)]),
        output_tokens=np.array([rng.choice([20, 60, 150, 200]) for _ in range(n)]),
        generated=np.zeros(n, np.int64),
    )
    batch = simulate_batch(samples, cluster)
    assert batch.done.outcomes.num_preemptions.any()
    work = ClusterWork(requests=samples.requests(block_size=16))
    steps = simulate_cluster(work, cluster, record="steps").instances[0].written.steps()
    for wanted in (n // 2, n):
        found = batch_result(batch, wanted=wanted, asked_from=0, is_carried=False)
        held = tail_held = 0
        for step in steps:
            begin, end = step.t, min(step.t + step.dur, found.end_us)
            held += len(step.sched) * max(0, end - begin)
            tail_held += len(step.sched) * max(0, end - max(begin, found.tail_us))
        whole = 6 * found.end_us
        assert found.idle_frac == pytest.approx(1 - held / whole, abs=1e-12)
        tail = (6 * (found.end_us - found.tail_us) - tail_held) / whole
        assert found.tail_idle_frac == pytest.approx(tail, abs=1e-12)
