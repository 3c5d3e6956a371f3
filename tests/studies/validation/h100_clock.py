"""How long the H100's steps took at which clock and load: steps' ends from vLLM's log, the clock from nvidia-smi."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

RUNS = (
    *("probe", "idle", "r30", "r55", "r80", "long", "shared", "r105", "r56", "r82", "r56_seed2"),
    *("r55_again", "r80_again", "ramp"),
)
"""All runs with the server's default flags."""
RUNS_OF_64_SEATS = ("seqs64_r30", "seqs64_r55", "seqs64_r80")
CLOCKS = (1300, 1500, 1600, 1700, 1800, 1900, 1960, 1990)
FULL_CLOCK = 1960
"""MHz from which the GPU counts as unthrottled; its highest is 1980."""
SMALLEST_PREFILL = 1000
"""Tokens from which a step's time is the GPU's: below, launching the kernels takes as long."""
PREFILL_RATES = (0, 1, 5000, 10_000, 15_000, 20_000, 25_000, 40_000)
STEP_TOKENS = (0, 128, 256, 512, 640, 1024, 1536, 2048, 3072)
FARTHEST_S = 0.3
LOADS = ("r30", "r55", "r56_seed2", "r80", "r82")
"""Runs of one kind of prompts and of a rising load that the server can serve."""


def tables(work: Path, readings: Path) -> list[str]:
    """Return four tables: step time by clock, step time by prompt tokens, clock by load, step time by run."""
    gpu = pd.read_csv(readings)
    by_name = {run: with_clock(read_steps(work / f"{run}.steps.csv"), gpu) for run in RUNS}
    steps = list(by_name.values())
    decode, prefill = decode_and_prefill(steps)
    _, of_few_seats = decode_and_prefill([read_steps(work / f"{run}.steps.csv") for run in RUNS_OF_64_SEATS])
    return [
        *by_clock(decode, prefill),
        "",
        *by_tokens(prefill, of_few_seats),
        "",
        *by_load(pd.concat(steps), gpu),
        "",
        *by_run({run: by_name[run] for run in LOADS}, decode, prefill),
    ]


def decode_and_prefill(runs: list[pd.DataFrame]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the steps that only decode and the lone ones with prompts, the latter with ``alone_ms``."""
    decode, prefill = pd.concat(map(decode_steps, runs)), pd.concat(map(lone_prefills, runs))
    before = typical(decode, prefill["decoded_before"])
    return decode, prefill.assign(alone_ms=prefill["both_ms"] - before)


def read_steps(path: Path) -> pd.DataFrame:
    """Return the logged steps, ``took_ms`` from the end of the step before."""
    table = pd.read_csv(path)
    return table.assign(took_ms=table["end_unix_us"].diff() / 1e3)


def with_clock(steps: pd.DataFrame, gpu: pd.DataFrame) -> pd.DataFrame:
    """Return the steps with clock and power (mean of a second) at their ends; without them where no reading is near."""
    at, readings = steps["end_unix_us"].to_numpy() / 1e3 - 30, gpu["unix_ms"].to_numpy(float)
    near = np.abs(readings[np.clip(np.searchsorted(readings, at), 0, len(readings) - 1)] - at)
    found = {name: np.interp(at, readings, gpu[name]) for name in ("sm_mhz", "mean_power_w")}
    return steps.assign(**{name: np.where(near < 1e3 * FARTHEST_S, found[name], np.nan) for name in found})


def decode_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the steps that only decode, between two like them."""
    pure = steps["num_prefill_tokens"] == 0
    inner = pure & pure.shift(1, fill_value=False) & pure.shift(-1, fill_value=False)
    return steps[inner & (steps["took_ms"] < 60) & (steps["num_decode_tokens"] > 0)]


def lone_prefills(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the steps with prompts between steps without; ``both_ms`` is with the step before.

    vLLM's log has the end of the step before too late, by the time that launching the prefill took; of both together
    it has the right time.
    """
    prefill = steps["num_prefill_tokens"] > 0
    alone = prefill & ~(prefill.shift(1) | prefill.shift(2) | prefill.shift(-1)).astype(bool)
    before = steps["num_decode_tokens"].shift(1).fillna(0)
    both = steps["took_ms"] + steps["took_ms"].shift(1)
    return steps.assign(both_ms=both, decoded_before=before)[alone & (before > 0) & (both < 300)]


def typical(decode: pd.DataFrame, sequences: pd.Series[float]) -> np.ndarray:
    """Return the median time (ms) of a decode step of so many sequences."""
    known = decode.groupby("num_decode_tokens")["took_ms"].median()
    return np.interp(sequences, known.index.to_numpy(float), known.to_numpy(float))


def by_clock(decode: pd.DataFrame, prefill: pd.DataFrame) -> Iterator[str]:
    """Yield the table of both kinds of steps against what they take at full clock."""
    large, usual = at_full_clock(prefill)
    took = large["alone_ms"].to_numpy()
    decode = decode.dropna(subset=["sm_mhz"])
    at_full = typical(decode[decode["sm_mhz"] > FULL_CLOCK], decode["num_decode_tokens"])
    sides = [
        table.assign(ratio=ratio, band=pd.cut(table["sm_mhz"], list(CLOCKS))).groupby("band", observed=True)
        for table, ratio in ((large, took / (shape_of(large) @ usual)), (decode, decode["took_ms"] / at_full))
    ]
    yield "| clock, MHz | power, W | steps with prompts | of their time at full clock | decode steps | of theirs |"
    yield "|---|---|---|---|---|---|"
    for band, rows in sides[0]:
        others = sides[1].get_group(band)
        yield (
            f"| {band.left} to {band.right} | {rows['mean_power_w'].median():.0f} | {len(rows)} | "
            f"{rows['ratio'].median():.2f} | {len(others):,} | {others['ratio'].median():.2f} |"
        )


def shape_of(prefill: pd.DataFrame) -> np.ndarray:
    """Return what the time of steps with prompts is made of: the launch, the tokens, their attention."""
    tokens = prefill["num_prefill_tokens"]
    return np.column_stack([np.ones(len(prefill)), tokens, tokens**2 / prefill["num_prefill_requests"]])


def at_full_clock(prefill: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the large steps with prompts, and what each part of their shape costs at full clock, ms."""
    large = prefill[prefill["num_prefill_tokens"] > SMALLEST_PREFILL].dropna(subset=["sm_mhz"])
    full = (large["sm_mhz"] > FULL_CLOCK).to_numpy()
    terms, took = shape_of(large)[full], large["alone_ms"].to_numpy()[full]
    return large, np.linalg.lstsq(terms / took[:, None], np.ones(full.sum()), rcond=None)[0]


def by_run(runs: dict[str, pd.DataFrame], decode: pd.DataFrame, prefill: pd.DataFrame) -> Iterator[str]:
    """Yield the table of how much slower a run's steps are for the share of its time that its tokens compute."""
    _, usual = at_full_clock(prefill)
    decode = decode[decode["sm_mhz"] > FULL_CLOCK]
    yield "| run | tokens/s | share of time computing | steps with prompts | of their time at full clock | decodes |"
    yield "|---|---|---|---|---|---|"
    for run, steps in runs.items():
        span_ms = float(np.ptp(steps["end_unix_us"])) / 1e3
        tokens = float(steps[["num_prefill_tokens", "num_decode_tokens"]].to_numpy().sum())
        own_decode, own_prefill = decode_and_prefill([steps])
        before = typical(decode, own_prefill["decoded_before"])
        large, _ = at_full_clock(own_prefill.assign(alone_ms=own_prefill["both_ms"] - before))
        slower = (large["alone_ms"] / (shape_of(large) @ usual)).median()
        own_decode = own_decode.dropna(subset=["sm_mhz"])
        decodes = (own_decode["took_ms"] / typical(decode, own_decode["num_decode_tokens"])).median()
        yield (
            f"| {run} | {1e3 * tokens / span_ms:,.0f} | {usual[1] * tokens / span_ms:.2f} | {len(large)} | "
            f"{slower:.3f} | {decodes:.3f} |"
        )


def by_tokens(prefill: pd.DataFrame, other: pd.DataFrame) -> Iterator[str]:
    """Yield the table of how long a step with prompts takes beside at most 30 sequences, by all its tokens.

    ``other``: of the server with 64 seats, which captures CUDA graphs only up to 128 tokens.
    """
    sides = []
    for table in (prefill, other):
        few = table[table["num_decode_tokens"] <= 30]
        tokens = few["num_prefill_tokens"] + few["num_decode_tokens"]
        sides.append(few.groupby(pd.cut(tokens, list(STEP_TOKENS)), observed=True)["alone_ms"])
    yield "| tokens in the step | graphs to 512: steps | median, ms | graphs to 128: steps | median, ms |"
    yield "|---|---|---|---|---|"
    for band, rows in sides[0]:
        others = sides[1].get_group(band)
        yield (
            f"| {band.left + 1} to {band.right} | {len(rows)} | {rows.median():.1f} | {len(others)} | "
            f"{others.median():.1f} |"
        )


def by_load(steps: pd.DataFrame, gpu: pd.DataFrame) -> Iterator[str]:
    """Yield the table of clock and power by prompt tokens per second."""
    done = steps.assign(second=steps["end_unix_us"] // 1_000_000).groupby("second")
    seconds = done[["num_prefill_tokens", "num_decode_tokens"]].sum()
    readings = gpu.assign(second=gpu["unix_ms"] // 1000).groupby("second")
    seconds = seconds.join(readings[["power_w", "sm_mhz", "at_power_limit"]].mean()).dropna()
    yield "| prompt tokens/s | seconds | power, W | clock, MHz | share of readings at the power limit |"
    yield "|---|---|---|---|---|"
    bands = pd.cut(seconds["num_prefill_tokens"], list(PREFILL_RATES), right=False)
    for band, rows in seconds.groupby(bands, observed=True):
        yield (
            f"| {band.left:,} to {band.right:,} | {len(rows)} | {rows['power_w'].mean():.0f} | "
            f"{rows['sm_mhz'].mean():.0f} | {rows['at_power_limit'].mean():.2f} |"
        )
