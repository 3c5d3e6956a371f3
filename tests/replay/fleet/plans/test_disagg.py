"""Prefill and decode pools: the cheapest by formula beside the cluster engine's, and larger where that asks for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vtwin
from replay.fleet.check.disagg_check import prefill_engine, verify_handoff
from replay.fleet.check.steady import RunLength
from replay.fleet.inputs.need import Need
from replay.fleet.inputs.profiles import from_profile, shipped_profiles
from replay.fleet.plans.disagg import plan_disagg
from replay.fleet.plans.size import SizeCheck
from sim.cluster.transfer.disaggregation_config import Disaggregation
from sim.fleet import Lengths
from sim.fleet.disaggregated import Transfer, disaggregated_at, keeps_by_formula, sweep_disaggregated
from sim.fleet.sizing import Objective
from tests.studies.validation.prefill_decode import lengths, point, twin

LENGTHS = Lengths(input_tokens=np.array([400.0, 1500.0]), output_tokens=np.array([40.0, 60.0]))
A100 = from_profile("A100", shipped_profiles()["A100"], context=2048)
FAST = Disaggregation(kv_bandwidth_gbps=1e5, kv_base_latency_us=0, kv_bytes_per_token=1)
FREE = Transfer(alpha_prefill=1.0, alpha_decode=1.0, beta_ttft=1.0)


def test_with_free_transfers_simulation_and_formula_agree() -> None:
    """One prompt at a time on a prefill engine: M/G/c; a decode engine's iterations by Little's law."""
    profiles = (A100.profile, A100.profile)
    formula = disaggregated_at(profiles, LENGTHS, 80.0, engines=(3, 2), context=2048, transfer=FREE)
    seen = verify_handoff(
        (A100, A100),
        LENGTHS,
        80.0,
        engines=(3, 2),
        transfer=FAST,
        stay_s=2.0,
        seed=1,
        asked=RunLength(num_requests=4000),
    )
    assert prefill_engine(A100).max_num_seqs == 1
    assert seen.whole.failed_frac == 0
    assert seen.prefill_active / 1 == pytest.approx(formula.prefill_utilization, rel=0.15)
    assert seen.whole.tpot_mean.value == pytest.approx(formula.tpot_s, rel=0.1)
    assert seen.until_moved.value < 0.02
    parts = (seen.until_prefilled, seen.until_moved, seen.until_token)
    assert sum(each.value for each in parts) > seen.whole.ttft_p50.value * 0.7


@pytest.mark.parametrize(
    ("engines", "rate", "has_room", "is_seen"),
    [((6, 3), 30.0, True, True), ((1, 3), 41.0, False, True), ((6, 1), 120.0, False, False)],
)
def test_near_saturation_of_either_pool_a_run_is_not_long_enough_until_it_saw_it_full(
    engines: tuple[int, int], rate: float, has_room: bool, is_seen: bool
) -> None:
    """One prefill engine is full now and then; one decode engine of 48 seats is overloaded, and so full only once."""
    few = replace(A100, engine=replace(A100.engine, max_num_seqs=48))
    seen = verify_handoff(
        (A100, few),
        LENGTHS,
        rate,
        engines=engines,
        transfer=FAST,
        stay_s=0.8,
        seed=1,
        asked=RunLength(num_requests=900),
    ).whole
    assert (seen.room > 4) is has_room
    assert seen.is_seen_full is is_seen
    assert is_seen or not seen.is_long_enough


def test_slow_links_show_in_the_simulation_and_engines_are_added() -> None:
    objective = Objective(ttft_p99_s=0.25)
    asked = SizeCheck(asked=RunLength(num_requests=1500))
    plans = [
        plan_disagg(
            (A100, A100),
            Need(lengths=LENGTHS, rate_per_s=80.0, objective=objective, context=2048),
            by_formula=FREE,
            transfer=Disaggregation(kv_bandwidth_gbps=gbps, kv_bytes_per_token=327680),
            check=asked,
        )
        for gbps in (1000.0, 12.0)
    ]
    fast, slow = plans
    assert fast.is_met
    assert slow.tried[0].check.until_moved.value > 2 * fast.tried[0].check.until_moved.value
    assert len(slow.tried) > len(fast.tried)


def test_the_command_prints_both_and_the_json_has_the_recommended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cdf.json").write_text("[[512, 0.4], [2048, 1.0]]")
    asked = [
        "fleet",
        "size",
        "--layout",
        "disagg",
        "--workload",
        str(tmp_path / "cdf.json"),
        "--rate",
        "40",
        "--profile",
        "A100",
    ]
    asked += ["--slo", "ttft_p99=2s", "--measure", "5s:20s", "--availability", "0.5"]
    assert vtwin.main(asked) == 0
    captured = capsys.readouterr()
    assert "formula" in captured.out
    assert "TTFT p99" in captured.out
    assert "assumed: a 70B-class model" in captured.err
    assert vtwin.main([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    recommended, last = told["recommended"], told["tried"][-1]
    assert told["met"] is True
    assert (recommended["prefill"], recommended["decode"]) == (last["prefill"], last["decode"])
    assert recommended["decode_provisioned"] == 2 * recommended["decode"]
    assert last["verified"]["ttft_p99_us"] <= 2e6
    assert (last["verified"]["method"], last["verified"]["measured_to_us"]) == ("simulated", 20e6)


@pytest.mark.parametrize(
    ("name", "at_once", "engines"),
    [
        ("dense (Qwen3-14B, H100)", 50, (1, 1)),
        ("MoE (Qwen3-30B-A3B, H100)", 1, (1, 1)),
        ("MoE (Qwen3-30B-A3B, H100)", 100, (1, 2)),
        ("large alpha0 (60 ms)", 20, (2, 3)),
        ("large alpha0 (60 ms)", 100, (1, 2)),
    ],
)
def test_a_twins_first_token_by_formula_is_near_the_simulations(
    name: str, at_once: int, engines: tuple[int, int]
) -> None:
    """Prompts share steps, the KV moves, and the decode engine takes some steps to the token."""
    found = point(name, at_once, engines, num_requests=5000)
    mean, p99 = found.off
    assert abs(mean) < 0.15
    assert abs(p99) < 0.25
    assert found.formula.tpot_s == pytest.approx(
        found.seen.whole.tpot_mean.value, rel=0.1 if at_once > 1 else 0.3
    )


def test_the_cheapest_pools_of_a_twin_are_the_cheapest_that_keep_the_objective_by_formula() -> None:
    """Its TTFT has steps of both pools in it: fewer prefill engines may need more decode engines."""
    source = twin("large alpha0 (60 ms)")
    assert source.steps is not None
    pair, steps = (source.profile, source.profile), (source.steps, source.steps)
    objective = Objective(ttft_p99_s=0.265)
    found = sweep_disaggregated(pair, lengths(), 160.0, objective, context=8192, steps=steps)

    def keeps(prefill: int, decode: int) -> bool:
        at = disaggregated_at(pair, lengths(), 160.0, engines=(prefill, decode), context=8192, steps=steps)
        return keeps_by_formula(at, objective)

    fewest = min(p + d for p in range(1, 9) for d in range(1, 9) if keeps(p, d))
    assert found[0].prefill + found[0].decode == fewest
    assert all(keeps(each.prefill, each.decode) for each in found)
    least = [min(getattr(each, pool) for each in found) for pool in ("prefill", "decode")]
    assert sum(least) < fewest
