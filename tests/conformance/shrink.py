"""The smallest case that still fails: fewer requests, then simpler settings, then smaller requests.

Greedy: a simplification is kept when the case goes on failing, and everything is tried again until nothing
helps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

from tests.conformance.conventions import OUTPUT_ORIGIN, PROMPT_ORIGIN, REQUEST_STRIDE, output_token_id
from tests.conformance.draw import Case, Row

SIMPLEST: dict[str, list[Any]] = {
    "policy": ["fcfs"],
    "async_scheduling": [False],
    "enable_prefix_caching": [False],
    "enable_chunked_prefill": [True],
    "scheduler_reserve_full_isl": [True],
    "watermark": [0.0],
    "long_prefill_token_threshold": [0],
    "long_prefill_token_threshold_adaptive": [False],
    "frontend": ["none"],
    "max_model_len": [4096],
    "max_num_batched_tokens": [2048],
    "max_num_seqs": [64, 1, 2, 3],
    "num_gpu_blocks": [1000],
    "block_size": [16, 4],
    "beta0": ["1"],
    "beta1": ["0"],
    "beta2": ["0"],
    "store_threshold": [0],
    "load_us_per_block": ["0", "1"],
    "store_us_per_block": ["0", "1"],
    "num_cpu_blocks": [1000, 1],
}
"""Each setting's values, the simplest first."""

NOBODY = 4 * 10**12
"""Where the tokens of requests that were dropped go: still told apart, but nobody's outputs any more."""


def renumbered(token: int, numbers: dict[int, int]) -> int:
    """Return a token of an explicit prompt after requests were dropped: outputs go with their request."""
    if not OUTPUT_ORIGIN <= token < OUTPUT_ORIGIN + PROMPT_ORIGIN:
        return token
    request, number = divmod(token - OUTPUT_ORIGIN, REQUEST_STRIDE)
    if request in numbers:
        return output_token_id(numbers[request], number)
    return NOBODY + token - OUTPUT_ORIGIN


def with_rows(case: Case, kept: list[int]) -> Case:
    """Return the case with only the rows ``kept``."""
    numbers = {old: new for new, old in enumerate(kept)}
    rows = []
    for old in kept:
        row = dict(case.rows[old])
        if "prompt_token_ids" in row:
            row["prompt_token_ids"] = [renumbered(token, numbers) for token in row["prompt_token_ids"]]
        rows.append(row)
    return replace(case, rows=rows)


def with_row(case: Case, number: int, row: Row) -> Case:
    """Return the case with one row replaced."""
    return replace(case, rows=[*case.rows[:number], row, *case.rows[number + 1 :]])


def fewer_requests(case: Case) -> Iterator[Case]:
    """Yield the case without a half of its requests, a quarter, … and each single one."""
    size = len(case.rows) // 2
    while size > 0:
        for start in range(0, len(case.rows), size):
            kept = [*range(start), *range(start + size, len(case.rows))]
            if kept:
                yield with_rows(case, kept)
        size //= 2


def simpler_settings(case: Case) -> Iterator[Case]:
    """Yield the case with one setting simpler than it is."""
    for name, values in SIMPLEST.items():
        if name not in case.settings:
            continue
        present = case.settings[name]
        simpler = values[: values.index(present)] if present in values else values
        for value in simpler:
            yield replace(case, settings=case.settings | {name: value})


def smaller(number: int, least: int) -> list[int]:
    """Return smaller numbers to try, boldest first."""
    return sorted({least, least + (number - least) // 2, number - 1} & set(range(least, number)))


def smaller_rows(case: Case) -> Iterator[Case]:
    """Yield the case with one request simpler: earlier, shorter, less shared."""
    if case.rows[-1]["arrival_us"] > 0:
        yield replace(case, rows=[row | {"arrival_us": 0} for row in case.rows])
    for number, row in enumerate(case.rows):
        earliest = case.rows[number - 1]["arrival_us"] if number else 0
        changes: list[Row] = [{"arrival_us": value} for value in smaller(row["arrival_us"], earliest)]
        changes += [{"output_len": value} for value in smaller(row["output_len"], 1)]
        if row.get("priority"):
            changes.append({"priority": 0})
        if "prompt_token_ids" in row:
            ids = row["prompt_token_ids"]
            changes += [{"prompt_token_ids": ids[:length]} for length in smaller(len(ids), 1)]
            yield with_row(case, number, {"prompt_len": len(ids)} | without(row, "prompt_token_ids"))
        else:
            changes += [{"prompt_len": value} for value in smaller(row["prompt_len"], 1)]
        if "prefix_group" in row:
            yield with_row(case, number, without(row, "prefix_group", "prefix_len"))
        for change in changes:
            yield with_row(case, number, row | change)


def without(row: Row, *keys: str) -> Row:
    """Return a row without some of its keys."""
    return {key: value for key, value in row.items() if key not in keys}


def shrink(case: Case, fails: Callable[[Case], bool], *, most_trials: int = 2000) -> Case:
    """Return the smallest failing case found in ``most_trials`` calls of ``fails``; ``case`` itself fails."""
    trials = count(1)
    best = None
    while best is not case:
        best = case
        for simplify in (fewer_requests, simpler_settings, smaller_rows):
            while True:
                candidates = (candidate for candidate in simplify(case) if next(trials) <= most_trials)
                smaller_case = next((candidate for candidate in candidates if fails(candidate)), None)
                if smaller_case is None:
                    break
                case = smaller_case
    return case
