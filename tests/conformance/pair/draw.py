"""``python -m tests.conformance.pair.draw FOLDER``: the cases of ``recordings``, drawn from fixed seeds."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

LINK = {"kv_bytes_per_token": 131072, "kv_bandwidth_gbps": 25, "kv_base_latency_us": 50}
SLOW_LINK = {"kv_bytes_per_token": 131072, "kv_bandwidth_gbps": 1.5, "kv_base_latency_us": 700}
BETAS = {"beta0": "5000", "beta1": "20", "beta2": "100"}


def rows(
    seed: int,
    *,
    num: int = 60,
    gap_us: int,
    prompts: tuple[int, int],
    outputs: tuple[int, int],
    prefixes: tuple[int, ...] = (),
    priorities: bool = False,
) -> list[dict[str, Any]]:
    """Return requests with Poisson arrivals; with ``prefixes`` most begin as others do, up to so many tokens."""
    rng, now = random.Random(seed), 0.0
    drawn = []
    for _ in range(num):
        now += rng.expovariate(1 / gap_us)
        row: dict[str, Any] = {
            "arrival_us": int(now),
            "prompt_len": rng.randint(*prompts),
            "output_len": rng.randint(*outputs),
        }
        if prefixes and rng.random() < 0.8:
            group = rng.randrange(len(prefixes))
            row |= {"prefix_group": group, "prefix_len": prefixes[group]}
        if priorities:
            row["priority"] = rng.randrange(3)
        drawn.append(row)
    return drawn


def cases() -> dict[str, tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Return configuration and requests of each case by its name."""
    short = {"prompts": (20, 900), "outputs": (1, 40)}
    tight = {"num_gpu_blocks": 230, "max_num_seqs": 32}
    whole = {"prompts": (16, 16), "outputs": (2, 9)}
    blocks_of_16 = rows(9, gap_us=3000, **whole)
    for i, row in enumerate(blocks_of_16):
        row["prompt_len"] = 16 * (1 + i % 7)
    return {
        "01_light": ({"transfer": LINK}, rows(1, gap_us=60_000, **short)),
        "02_busy": ({"transfer": LINK}, rows(2, num=90, gap_us=9_000, **short)),
        "03_chunked_prefill": (
            {"transfer": LINK, "prefill": {"max_num_batched_tokens": 256}},
            rows(3, gap_us=30_000, prompts=(100, 2500), outputs=(2, 30)),
        ),
        "04_decode_kv_pressure": (
            {"transfer": LINK, "decode": tight},
            rows(4, num=80, gap_us=9_000, prompts=(30, 600), outputs=(20, 150)),
        ),
        "05_prefill_held_back": (
            {"transfer": SLOW_LINK, "prefill": {"num_gpu_blocks": 120}},
            rows(5, gap_us=14_000, prompts=(30, 900), outputs=(2, 30)),
        ),
        "06_prefix_hits": (
            {"transfer": LINK},
            rows(6, num=90, gap_us=12_000, prompts=(300, 800), outputs=(2, 30), prefixes=(64, 250, 299)),
        ),
        "07_prefix_hits_under_pressure": (
            {"transfer": SLOW_LINK, "prefill": {"num_gpu_blocks": 300}, "decode": {"num_gpu_blocks": 260}},
            rows(7, num=90, gap_us=12_000, prompts=(100, 800), outputs=(20, 90), prefixes=(64, 90, 99)),
        ),
        "08_few_seats": (
            {"transfer": LINK, "decode": {"max_num_seqs": 4}, "prefill": {"max_num_seqs": 2}},
            rows(8, num=50, gap_us=9_000, **short),
        ),
        "09_prompts_of_whole_blocks": ({"transfer": SLOW_LINK}, blocks_of_16),
        "10_no_prefix_caching": (
            {"transfer": SLOW_LINK, "enable_prefix_caching": False, "decode": tight},
            rows(10, gap_us=9_000, prompts=(30, 600), outputs=(20, 120)),
        ),
        "11_priority": (
            {"transfer": LINK, "policy": "priority", "decode": tight},
            rows(11, num=80, gap_us=9_000, prompts=(30, 600), outputs=(20, 120), priorities=True),
        ),
        "12_async": ({"transfer": LINK, "async_scheduling": True}, rows(12, num=90, gap_us=9_000, **short)),
        "13_async_decode_kv_pressure": (
            {"transfer": LINK, "async_scheduling": True, "decode": tight},
            rows(13, num=80, gap_us=9_000, prompts=(30, 600), outputs=(20, 150)),
        ),
        "14_async_prefill_kv_pressure": (
            {
                "transfer": SLOW_LINK,
                "async_scheduling": True,
                "prefill": {
                    "num_gpu_blocks": 90,
                    "max_num_batched_tokens": 128,
                    "scheduler_reserve_full_isl": False,
                },
            },
            rows(14, gap_us=14_000, prompts=(30, 900), outputs=(2, 30)),
        ),
        "15_async_prefix_hits_chunked": (
            {
                "transfer": SLOW_LINK,
                "async_scheduling": True,
                "prefill": {"max_num_batched_tokens": 200, "long_prefill_token_threshold": 100},
                "decode": {"num_gpu_blocks": 300, "watermark": 0.05},
            },
            rows(15, num=80, gap_us=12_000, prompts=(300, 800), outputs=(10, 60), prefixes=(64, 250, 299)),
        ),
        "16_async_priority_pressure": (
            {"transfer": LINK, "policy": "priority", "async_scheduling": True, "decode": tight},
            rows(16, num=80, gap_us=9_000, prompts=(30, 600), outputs=(20, 120), priorities=True),
        ),
        "17_blocks_reserved_for_prefills": (
            {
                "transfer": LINK,
                "max_num_seqs": 32,
                "decode": {"num_gpu_blocks": 150, "long_prefill_token_threshold": 32},
            },
            rows(17, num=80, gap_us=9_000, prompts=(30, 700), outputs=(20, 150)),
        ),
        "18_async_prefill_preempts_in_flight": (
            {
                "transfer": LINK,
                "async_scheduling": True,
                "prefill": {
                    "num_gpu_blocks": 70,
                    "max_num_batched_tokens": 256,
                    "long_prefill_token_threshold": 64,
                    "scheduler_reserve_full_isl": False,
                },
            },
            rows(18, num=80, gap_us=9_000, prompts=(30, 900), outputs=(2, 30)),
        ),
    }


def text_of(config: dict[str, Any], drawn: list[dict[str, Any]]) -> dict[str, str]:
    """Return a case's files by name."""
    lines = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in drawn)
    return {"config.json": json.dumps({**BETAS, **config}, indent=1) + "\n", "trace.jsonl": lines}


def main() -> int:
    """Write every case's config.json and trace.jsonl."""
    folder = Path(sys.argv[1])
    for name, (config, drawn) in cases().items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for file, text in text_of(config, drawn).items():
            (folder / name / file).write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
