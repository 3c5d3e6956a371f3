"""``fleet size --layout disagg``: TTFT by formula against the simulation, over load, for three kinds of twins."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from replay.fleet.check.disagg_check import HandoffCheck, verify_handoff
from replay.fleet.check.steady import RunLength
from replay.fleet.demand import source_of
from replay.fleet.inputs.profiles import ProfileSource, from_twin
from replay.twin.config_read import read_config_text
from sim.cluster import Disaggregation
from sim.fleet import Lengths
from sim.fleet.disaggregated import Disaggregated, Transfer, disaggregated_at
from sim.fleet.step_pools import KVMoves

LARGE_ALPHA0 = """\
engine: {max_num_seqs: 256, max_num_batched_tokens: 8192, num_gpu_blocks: 20000, max_model_len: 16384}
latency:
  model: extended
  coefficients: {alpha0: 60000, alpha1: 5, alpha2: 0, alpha3: 125, beta0: 8000, beta1: 20, beta2: 60}
"""
TWINS = {
    "dense (Qwen3-14B, H100)": ("Qwen/Qwen3-14B@H100:1", 163_840),
    "MoE (Qwen3-30B-A3B, H100)": ("Qwen/Qwen3-30B-A3B@H100:1", 98_304),
    "large alpha0 (60 ms)": (LARGE_ALPHA0, 131_072),
}
"""Each twin, and its bytes of KV per token."""
AT_ONCE, ENGINES = (1, 20, 50, 100), ((1, 1), (1, 2), (2, 3))
GBPS, BASE_US = 25.0, 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A twin with so many requests at once on each decode engine: TTFT by formula, and simulated."""

    twin: str
    at_once: int
    engines: tuple[int, int]
    formula: Disaggregated
    seen: HandoffCheck

    @property
    def off(self) -> tuple[float, float]:
        """By which share the formula's mean and p99 are off."""
        mean, p99 = self.seen.ttft_mean_s, self.seen.whole.ttft_p99.value
        return self.formula.ttft_mean_s / mean - 1, self.formula.ttft_p99_s / p99 - 1

    def row(self) -> str:
        """Return a row of the table."""
        off, whole = self.off, self.seen.whole.ttft_p99
        return (
            f"| {self.twin} | {self.at_once} | {self.engines[0]} + {self.engines[1]} | "
            f"{self.formula.prefill_utilization:.0%}, {self.formula.decode_utilization:.0%} | "
            f"{self.formula.ttft_mean_s * 1e3:.1f} / {self.seen.ttft_mean_s * 1e3:.1f} ({off[0]:+.0%}) | "
            f"{self.formula.ttft_p99_s * 1e3:.1f} / {whole.value * 1e3:.1f} ± {whole.half * 1e3:.1f} ({off[1]:+.0%}) |"
        )


@cache
def lengths() -> Lengths:
    """Return prompts of 290 tokens on average, and answers of 146."""
    rng = np.random.default_rng(1)
    return Lengths(
        input_tokens=np.ceil(rng.lognormal(5.5, 0.6, 2000)).clip(1, 4000),
        output_tokens=np.ceil(rng.lognormal(4.8, 0.6, 2000)).clip(1, 1000),
    )


@cache
def twin(name: str) -> ProfileSource:
    """Return a twin as a profile."""
    text = TWINS[name][0]
    if "@" in text:
        return source_of(text, lengths(), 8192)
    return from_twin(read_config_text(text, Path("twin.yaml")), lengths(), context=8192, name="twin")


def point(name: str, at_once: int, engines: tuple[int, int], *, num_requests: int) -> Point:
    """Return both ways of a twin at the rate at which so many requests are on each decode engine."""
    source, kv_bytes = twin(name), TWINS[name][1]
    assert source.steps is not None
    made = lengths().output_tokens
    stay_s = source.steps.decoding_s(at_once) / source.steps.tokens_a_step
    rate = at_once * engines[1] / (float(made.mean()) * stay_s)
    formula = disaggregated_at(
        (source.profile, source.profile),
        lengths(),
        rate,
        engines=engines,
        context=8192,
        transfer=Transfer(links=KVMoves(base_s=BASE_US / 1e6, token_s=kv_bytes / GBPS / 1e9)),
        steps=(source.steps, source.steps),
    )
    seen = verify_handoff(
        (source, source),
        lengths(),
        rate,
        engines=engines,
        transfer=Disaggregation(
            kv_bandwidth_gbps=GBPS, kv_base_latency_us=BASE_US, kv_bytes_per_token=kv_bytes
        ),
        stay_s=stay_s * float(np.percentile(made, 95)),
        seed=1,
        asked=RunLength(num_requests=num_requests),
    )
    return Point(twin=name, at_once=at_once, engines=engines, formula=formula, seen=seen)


def main() -> None:
    """Print a row per twin, load and number of engines, and the largest errors where neither pool is above 85 %."""
    print("| twin | requests at once | engines | taken | TTFT mean, ms, formula / simulated | TTFT p99, ms |")
    print("|---|---:|---|---|---|---|")
    found = []
    for name in TWINS:
        for at_once in AT_ONCE:
            for engines in ENGINES:
                each = point(name, at_once, engines, num_requests=20_000)
                found.append(each)
                print(each.row(), flush=True)
    held = [x for x in found if max(x.formula.prefill_utilization, x.formula.decode_utilization) <= 0.85]
    worst = [max(abs(each.off[place]) for each in held) for place in (0, 1)]
    print(f"\n{len(held)} points: mean within {worst[0]:.1%}, p99 within {worst[1]:.1%}")


if __name__ == "__main__":
    main()
