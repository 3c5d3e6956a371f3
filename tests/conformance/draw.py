"""Random cases for the differential test: configurations and traces, small, each a function of (seed, index).

A case has one value of every trait. Within each 40 consecutive cases a value occurs exactly as often as
TRAITS says, shuffled independently for each trait: 200 cases have every value twenty times or more, in ever
new combinations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Any

from tests.conformance.conventions import output_token_id

Row = dict[str, Any]

TRAITS = {
    "scheduling": {"sync": 20, "async": 20},
    "stages": {"1": 25, "2": 7, "3": 4, "4": 4},
    "policy": {"fcfs": 26, "priority": 14},
    "block_size": {"1": 5, "2": 4, "3": 4, "7": 4, "8": 4, "16": 9, "32": 5, "64": 5},
    "token_budget": {"1 to 8": 5, "16 to 128": 13, "200 to 600": 12, "2048": 10},
    "chunked_prefill": {"on": 34, "off": 6},
    "long_prefill": {"no threshold": 26, "threshold": 7, "adaptive": 7},
    "admission": {"whole sequence": 32, "first chunk": 8},
    "watermark": {"0": 30, "to 0.05": 5, "to 0.5": 5},
    "max_num_seqs": {"1": 4, "2 to 4": 12, "5 to 16": 14, "64": 10},
    "length_limit": {"far": 22, "binding, openai": 9, "binding, no frontend": 9},
    "kv_cache": {"tight": 20, "roomy": 6, "endless": 6, "a prompt beyond": 4, "a growth beyond": 4},
    "prefix_cache": {"on": 34, "off": 6},
    "sharing": {"nothing": 15, "prefixes": 9, "whole prompts": 7, "turns": 9},
    "arrivals": {"poisson": 14, "bursts": 9, "ties": 9, "at once": 8},
    "lengths": {"mixed": 21, "one token": 5, "long outputs": 9, "long prompts": 5},
    "ends": {"at max_tokens": 26, "some by themselves": 14},
    "coefficients": {"usual": 18, "half-way": 8, "zero": 4, "flat": 5, "six decimals": 5},
    "recorded": {"steps": 30, "steps and blocks": 10},
}
"""Each trait's values, and in how many of 40 cases each occurs."""

ROUND = 40

TINY = "1 to 8"
"""The token budget that makes the longest way through a prompt."""

Traits = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a recording is made from: config.json, the lines of trace.jsonl, and what was drawn."""

    name: str
    traits: Traits
    settings: dict[str, Any]
    rows: list[Row]


def traits_of(seed: int, index: int) -> Traits:
    """Return the traits of case ``index``."""
    number, position = divmod(index, ROUND)
    chosen = {}
    for trait, shares in TRAITS.items():
        values = [value for value, share in shares.items() for _ in range(share)]
        Random(f"{seed} {number} {trait}").shuffle(values)
        chosen[trait] = values[position]
    return chosen


def draw(seed: int, index: int) -> Case:
    """Return case ``index``."""
    traits = traits_of(seed, index)
    rng = Random(f"{seed} {index}")
    settings = {
        "policy": traits["policy"],
        "block_size": int(traits["block_size"]),
        "async_scheduling": traits["scheduling"] == "async",
        "pipeline_parallel_size": int(traits["stages"]),
        "enable_prefix_caching": traits["prefix_cache"] == "on",
        "enable_chunked_prefill": traits["chunked_prefill"] == "on",
        "scheduler_reserve_full_isl": traits["admission"] == "whole sequence",
        "watermark": {"0": 0.0, "to 0.05": rng.choice([0.01, 0.05]), "to 0.5": rng.choice([0.2, 0.5])}[
            traits["watermark"]
        ],
    }
    settings |= draw_coefficients(traits, rng)
    settings |= draw_batch_limits(traits, rng)
    rows = draw_rows(traits, settings, rng)
    settings |= draw_length_limit(traits, rows, rng)
    settings |= draw_cache(traits, settings, rows, rng=rng)
    settings |= keep_legal(settings, rng)
    settings["blocks"] = traits["recorded"] == "steps and blocks"
    settings["note"] = f"random, seed {seed}, case {index}"
    if traits["ends"] != "at max_tokens":
        let_some_stop(rows, Random(f"{seed} {index} ends"))
    return Case(name=f"random_{seed}_{index:04d}", traits=traits, settings=settings, rows=rows)


def let_some_stop(rows: list[Row], rng: Random) -> None:
    """Let two requests in three end by themselves, some of them with the last token that they may have."""
    for row in rows:
        if rng.random() < 2 / 3:
            row["stops_after"] = rng.randint(max(1, row["output_len"] // 3), row["output_len"])


# -- the configuration ------------------------------------------------------------------------------------


COEFFICIENTS = {
    "usual": [("6000", "18.5", "95"), ("1000", "20", "100"), ("9000", "0.25", "33.125")],
    "half-way": [("0.5", "1", "0.5"), ("2.5", "0.5", "1.5"), ("0", "0.5", "0.5"), ("10.5", "0.25", "0.25")],
    "zero": [("0", "0", "0"), ("0", "0", "1"), ("0", "1", "0")],
    "flat": [("6000", "0", "0"), ("5", "0", "0"), ("0.5", "0", "0"), ("1.5", "0", "0")],
    "six decimals": [("1234.567891", "0.000001", "17.333333"), ("0.333333", "0.166667", "0.5")],
}


def draw_coefficients(traits: Traits, rng: Random) -> dict[str, str]:
    """Return beta0, beta1, beta2."""
    return dict(
        zip(("beta0", "beta1", "beta2"), rng.choice(COEFFICIENTS[traits["coefficients"]]), strict=True)
    )


def draw_batch_limits(traits: Traits, rng: Random) -> dict[str, Any]:
    """Return what bounds a step."""
    budget = {"1 to 8": (1, 8), "16 to 128": (16, 128), "200 to 600": (200, 600), "2048": (2048, 2048)}
    seats = {"1": (1, 1), "2 to 4": (2, 4), "5 to 16": (5, 16), "64": (64, 64)}
    max_num_batched_tokens = rng.randint(*budget[traits["token_budget"]])
    max_num_seqs = rng.randint(*seats[traits["max_num_seqs"]])
    threshold = 0
    if traits["long_prefill"] != "no threshold":
        threshold = rng.choice([1, 5, 16, 40, 100])
    return {
        "max_num_batched_tokens": max_num_batched_tokens,
        "max_num_seqs": min(max_num_seqs, max_num_batched_tokens),
        "long_prefill_token_threshold": threshold,
        "long_prefill_token_threshold_adaptive": traits["long_prefill"] == "adaptive",
    }


def length_of(row: Row) -> int:
    """Return how long a prompt is."""
    return len(row["prompt_token_ids"]) if "prompt_token_ids" in row else int(row["prompt_len"])


def draw_length_limit(traits: Traits, rows: list[Row], rng: Random) -> dict[str, Any]:
    """Return max_model_len and the front end; without one, prompts over the limit are mostly taken out."""
    totals = sorted(length_of(row) + row["output_len"] for row in rows)
    if traits["length_limit"] == "far":
        return {
            "max_model_len": totals[-1] + rng.choice([0, 1, 500]),
            "frontend": rng.choice(["openai", "none"]),
        }
    limit = max(2, totals[rng.randrange(len(totals) // 4, len(totals))] - rng.randint(0, 3))
    if traits["length_limit"] == "binding, openai":
        return {"max_model_len": limit, "frontend": "openai"}
    if rng.random() < 0.7:
        kept = [row for row in rows if length_of(row) < limit]
        rows[:] = kept or [{"arrival_us": 0, "prompt_len": 1, "output_len": 9}]
    return {"max_model_len": limit, "frontend": "none"}


def blocks_of(row: Row, settings: dict[str, Any]) -> int:
    """Return how many blocks a request holds at its longest."""
    total = min(length_of(row) + row["output_len"], settings["max_model_len"])
    return int(-(-total // settings["block_size"]))


def draw_cache(traits: Traits, settings: dict[str, Any], rows: list[Row], *, rng: Random) -> dict[str, Any]:
    """Return num_gpu_blocks, and max_model_len where a row is made longer than the cache."""
    needs = [blocks_of(row, settings) for row in rows]
    kind = traits["kv_cache"]
    if kind == "endless":
        return {"num_gpu_blocks": 2 * sum(needs) + 10}
    if kind == "roomy":
        return {"num_gpu_blocks": 1 + max(*needs, sum(needs) // rng.choice([2, 3, 5]))}
    usable = max(needs) + rng.randint(0, max(needs))
    changes = {"num_gpu_blocks": 1 + usable}
    if kind != "tight":
        size = usable * settings["block_size"]
        row = rows[rng.randrange(len(rows))]
        for key in ("prompt_token_ids", "prefix_group", "prefix_len"):
            row.pop(key, None)
        beyond = rng.randint(1, 2 * settings["block_size"] + 5)
        if kind == "a prompt beyond":
            row["prompt_len"] = size + beyond
        else:
            row["prompt_len"] = max(1, size - rng.randint(0, 2 * settings["block_size"]))
            row["output_len"] = size - row["prompt_len"] + 1 + beyond
        changes["max_model_len"] = max(settings["max_model_len"], length_of(row) + row["output_len"])
    return changes


def keep_legal(settings: dict[str, Any], rng: Random) -> dict[str, Any]:
    """Return what must change for vLLM to take the settings; without chunks a step must hold any prompt."""
    changes = {
        "long_prefill_token_threshold": min(
            settings["long_prefill_token_threshold"], settings["max_model_len"]
        )
    }
    if not settings["enable_chunked_prefill"]:
        changes["max_num_batched_tokens"] = max(
            settings["max_num_seqs"], settings["max_model_len"] + rng.choice([0, 1, 30])
        )
    return changes


# -- the trace --------------------------------------------------------------------------------------------


def draw_lengths(traits: Traits, block_size: int, rng: Random) -> tuple[int, int]:
    """Return a request's prompt and output tokens: longer for larger blocks, shorter for a tiny budget."""
    if traits["lengths"] == "one token":
        return rng.choice([1, 1, 2, block_size, block_size + 1]), rng.choice([1, 1, 2, 3])
    scale = max(1, block_size // 16)
    longest_prompt = {"mixed": 120, "long outputs": 60, "long prompts": 400}[traits["lengths"]] * scale
    if traits["token_budget"] == TINY:
        longest_prompt = 40
    longest_output = {"mixed": 40, "long outputs": 100, "long prompts": 15}[traits["lengths"]]
    prompt = rng.randint(1, longest_prompt)
    if rng.random() < 0.2:  # the edges of blocks are where mistakes are
        prompt = max(1, prompt // block_size * block_size + rng.choice([-1, 0, 1]))
    return prompt, rng.randint(1, longest_output)


def num_rows(traits: Traits, settings: dict[str, Any], rng: Random) -> int:
    """Return how many requests: 10 to 60, fewer where they would take thousands of steps."""
    seats = settings["max_num_seqs"]
    outputs = {"mixed": 20, "one token": 2, "long outputs": 50, "long prompts": 8}[traits["lengths"]]
    return min(rng.randint(10, 60), max(8, 900 * seats // outputs))


def draw_rows(traits: Traits, settings: dict[str, Any], rng: Random) -> list[Row]:
    """Return the requests, in the order of their arrival."""
    arrivals = draw_arrivals(traits, settings, num_rows(traits, settings, rng), rng=rng)
    rows = SHARING[traits["sharing"]](traits, settings["block_size"], len(arrivals), rng)
    urgencies = rng.choice([[0, 1, 2], [-1, 0, 0, 5], [3], list(range(40))])
    for row, arrival_us in zip(rows, arrivals, strict=True):
        row["arrival_us"] = arrival_us
        if traits["policy"] == "priority":
            row["priority"] = rng.choice(urgencies)
    return rows


def draw_arrivals(traits: Traits, settings: dict[str, Any], number: int, *, rng: Random) -> list[int]:
    """Return sorted times, their scale that of a step's duration."""
    beta0, beta1, beta2 = (float(settings[name]) for name in ("beta0", "beta1", "beta2"))
    step_us = max(1, int(beta0 + 30 * beta1 + 8 * beta2))
    gap_us = step_us * rng.choice([0.3, 1, 3, 10])
    kind = traits["arrivals"]
    if kind == "at once":
        return [0] * number
    if kind == "ties":
        together = rng.randint(2, 6)
        return [i // together * max(1, round(gap_us * together)) for i in range(number)]
    if kind == "bursts":
        size = rng.randint(4, 15)
        return sorted(int(i // size * size * 2 * gap_us + rng.randint(0, step_us)) for i in range(number))
    return [int(time_us) for time_us in accumulate(rng.expovariate(1 / gap_us) for _ in range(number))]


def share_nothing(traits: Traits, block_size: int, number: int, rng: Random) -> list[Row]:
    """Return requests of which no two begin alike."""
    lengths = [draw_lengths(traits, block_size, rng) for _ in range(number)]
    return [{"prompt_len": prompt, "output_len": output} for prompt, output in lengths]


def share_prefixes(traits: Traits, block_size: int, number: int, rng: Random) -> list[Row]:
    """Return requests of a few groups, each with a prefix in common, used in full or in part."""
    rows = share_nothing(traits, block_size, number, rng)
    groups = [max(block_size, draw_lengths(traits, block_size, rng)[0]) for _ in range(rng.randint(1, 6))]
    for row in rows:
        group = rng.randrange(len(groups))
        shared = groups[group] if rng.random() < 0.7 else rng.randint(0, groups[group])
        row |= {"prefix_group": group, "prefix_len": shared}
        if rng.random() < 0.8:
            row["prompt_len"] = shared + rng.randint(0, 2 * block_size) or 1
    return rows


def share_whole_prompts(traits: Traits, block_size: int, number: int, rng: Random) -> list[Row]:
    """Return requests that repeat a few prompts whole; lengths at and beside multiples of a block."""
    rows = share_nothing(traits, block_size, number, rng)
    lengths = [
        max(1, block_size * rng.randint(1, max(2, 64 // block_size)) + rng.choice([-1, 0, 0, 1]))
        for _ in range(rng.randint(1, 5))
    ]
    for row in rows:
        group = rng.randrange(len(lengths))
        row |= {"prefix_group": group, "prefix_len": lengths[group], "prompt_len": lengths[group]}
    return rows


def share_turns(traits: Traits, block_size: int, number: int, rng: Random) -> list[Row]:
    """Return turns of conversations, each with all before it; some branch off earlier, or repeat one."""
    longest = 150 if traits["token_budget"] == TINY else 600
    histories: list[list[int]] = [[]]
    rows = []
    for i in range(number):
        prompt, output_len = draw_lengths(traits, block_size, rng)
        history = rng.choice(histories[-8:])
        first_new = 3 * 10**12 + i * 10**6
        said = range(first_new, first_new + (min(prompt, 60) if history else prompt))
        ids = [*history, *said] if rng.random() < 0.9 or not history else list(history)
        rows.append({"prompt_token_ids": ids, "output_len": output_len})
        answer = [output_token_id(i, j) for j in range(output_len)]
        if len(ids) + output_len < longest:
            histories.append(ids + answer[: rng.choice([output_len, output_len, output_len // 2])])
    return rows


SHARING: dict[str, Callable[[Traits, int, int, Random], list[Row]]] = {
    "nothing": share_nothing,
    "prefixes": share_prefixes,
    "whole prompts": share_whole_prompts,
    "turns": share_turns,
}
