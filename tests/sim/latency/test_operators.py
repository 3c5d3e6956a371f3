"""The time of operators adds up to the time of steps, and goes where the work goes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from replay.model import find_gpu, read_model_config
from replay.model.layout import Layout
from replay.model.model_peak import peak_times
from replay.twin.latency import physics_sets
from sim import EngineConfig, Physics, Profiled, Requests, Roofline, simulate
from sim.latency import PeakTimes
from sim.latency.blackbox import Blackbox
from sim.latency.latency_model import LatencyModel
from sim.latency.profiled import axis_knots
from tests.sim.step_batches import batch_of

KNOTS = axis_knots(4096)
PROFILED = Profiled(
    tokens_us=5.0 * KNOTS + 100,
    sequences_us=KNOTS[:20],
    decode_us=np.outer(KNOTS[:20], KNOTS) / 50,
    prefill_us=np.outer(KNOTS, KNOTS) / 900,
    chunks_us=np.add.outer(30.0 * KNOTS[:20], KNOTS / 70),
    scale=1.1,
    step=70.0,
)

STEPS = batch_of(
    [
        [(1, 500, True)],
        [(1, 500, True)] * 37,
        [(800, 0, False)],
        [(512, 1024, False), (300, 0, False), *[(1, 9000, True)] * 12],
        [(20000, 0, False)],
        [],
    ]
)
DENSE = ("Qwen/Qwen3-14B", 1, 1, Layout())
MEASURED = ("Qwen/Qwen3-30B-A3B", 2, 1, Layout())
SPARSE = ("Qwen/Qwen3-30B-A3B", 2, 1, Layout(dp=2, enable_expert_parallel=True, nccl_skew_us=1.0))
WINDOWED = ("google/gemma-3-12b-it", 2, 2, Layout())


def peak(model: str, tp: int, pp: int, layout: Layout) -> PeakTimes:
    return peak_times(read_model_config(model), find_gpu("H100"), tp=tp, pp=pp, layout=layout)


def models() -> list[LatencyModel]:
    named = physics_sets()["silicon-2026"]
    found: list[LatencyModel] = [PROFILED]
    for server in (DENSE, MEASURED, SPARSE, WINDOWED):
        found += [Roofline(peak=peak(*server)), Physics(peak=peak(*server), **named)]  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("model", models(), ids=lambda model: type(model).__name__)
def test_operators_add_up_to_the_step_and_none_is_negative(model: LatencyModel) -> None:
    parts = model.operators(STEPS)
    assert parts is not None
    assert np.allclose(
        np.sum(list(parts.values()), axis=0), model.durations_us(STEPS), atol=0.5001, rtol=1e-9
    )
    assert min(float(part.min()) for part in parts.values()) >= -1e-6


def test_measured_experts_are_an_operator_of_their_own() -> None:
    at_peak = peak(*MEASURED)
    parts = Physics(peak=at_peak).operators(STEPS)
    assert parts is not None
    tokens = Physics(peak=at_peak).padded(
        (STEPS.num_prefill_tokens + STEPS.num_decode_tokens).astype(np.float64)
    )
    inside = (tokens > 0) & (tokens <= 16384)
    assert inside.any()
    assert np.allclose(parts["experts"][inside], at_peak.measured_experts(tokens)[inside])
    assert "expert_weights" not in parts or not parts["expert_weights"].any()


def test_a_model_of_no_operators_says_so() -> None:
    assert Blackbox(beta0=1).operators(STEPS) is None


def test_time_goes_where_the_work_goes() -> None:
    parts = Roofline(peak=peak(*DENSE)).operators(STEPS)
    assert parts is not None
    one, _, chunk, _, long, none = range(6)
    assert parts["weights"][one] > 0.5 * sum(
        part[one] for part in parts.values()
    )  # one token reads all weights
    assert parts["matmul"][chunk] > parts["weights"][chunk]
    assert parts["prefill_attention"][long] > 20 * parts["prefill_attention"][chunk]
    assert parts["decode_attention"][chunk] == parts["prefill_attention"][one] == 0
    assert all(part[none] == 0 for part in parts.values())
    assert float(parts["collectives"].max()) == float(parts["experts"].max()) == 0
    sparse = Roofline(peak=peak(*SPARSE)).operators(STEPS)
    assert sparse is not None
    assert min(sparse["collectives"][one], sparse["experts"][one], sparse["expert_weights"][one]) > 0


@pytest.mark.parametrize("is_async", [False, True])
def test_the_recorded_steps_have_the_engines_own_sums(is_async: bool) -> None:
    n, rng = 40, np.random.default_rng(1)
    requests = Requests(
        arrival_us=np.sort(rng.integers(0, 400_000, n)),
        prompt_tokens=rng.integers(1, 3000, n),
        output_tokens=rng.integers(20, 200, n),
        priority=np.zeros(n, np.int64),
        hash_offsets=np.zeros(n + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )
    config = EngineConfig(max_num_seqs=16, num_gpu_blocks=300, async_scheduling=is_async)
    model = Roofline(peak=peak(*DENSE))
    run = simulate(requests, config, model, record="steps")
    batch, durations = run.step_batches()
    steps = sorted(run.steps(), key=lambda step: step.step)
    assert batch.num_prefill_tokens.tolist() == [step.P for step in steps]
    assert batch.num_decode_tokens.tolist() == [step.D for step in steps]
    assert run.num_preemptions > 0
    assert np.array_equal(model.durations_us(batch), durations)


def test_a_physics_model_that_hides_nothing_adds_products_and_reading() -> None:
    exposed = replace(Physics(peak=peak(*DENSE)), exposed=1.0)
    parts = exposed.operators(STEPS)
    assert parts is not None
    table = exposed.step_table()
    tokens = STEPS.num_prefill_tokens + STEPS.num_decode_tokens
    known = tokens <= 16384
    assert np.allclose((parts["weights"] + parts["expert_weights"])[known & (tokens > 0)], table.reading[1])
