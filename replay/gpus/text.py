"""A comparison of GPUs as a table for a terminal and as a JSON document."""

from __future__ import annotations

import math
from collections.abc import Sequence

from replay.capacity.text import marked
from replay.gpus.comparison import GpuQuestion, GpuResult
from replay.gpus.known_errors import KnownError
from replay.variants.side_by_side import side_by_side
from traces import RunLimit, or_null, shown_time

SCHEMA_VERSION = 1


def lines(results: Sequence[GpuResult], asked: GpuQuestion, *, width: int | None) -> list[str]:
    """Return the table, why the others do not start, and what the figures are worth."""
    fit = [each for each in results if not each.refusal]
    has_prices = any(each.price_per_hour is not None for each in fit)
    columns = [_column(each, asked, has_prices=has_prices) for each in fit]
    shown = [*side_by_side(columns, width=width).splitlines(), ""] if fit else []
    refused = [f"{name(each):<12}does not start: {each.refusal}" for each in results if each.refusal]
    return [*shown, *refused, *_conclusion(fit, asked), *_footnotes(fit, asked)]


def _conclusion(fit: Sequence[GpuResult], asked: GpuQuestion) -> list[str]:
    """Return which serves most, which costs least, and which the limits rule out; nothing of a single one."""
    able = sorted((each for each in fit if each.is_ranked), key=lambda each: -(each.rate_per_s or 0))
    short = [each for each in fit if each.capacity is not None and each.capacity.is_too_short]
    unable = [name(each) for each in fit if not each.rate_per_s and each not in short]
    within = " within the SLO" if asked.limits else ""
    said = [f"within the SLO at no rate: {', '.join(unable)}"] if unable and asked.limits else []
    if short:
        asks = max(each.capacity.requests_to_last for each in short if each.capacity is not None)
        said.append(
            f"not ranked, since runs are too short: {', '.join(map(name, short))} (--num-requests {asks})"
        )
    if len(able) + len(unable) < 2 or not able:
        return [*said, ""] if said else []
    most = f"serves most{within}: {name(able[0])}, {able[0].rate_per_s:.4g} requests/s"
    by_price = sorted(
        (each for each in able if each.output_tokens_per_unit),
        key=lambda each: -(each.output_tokens_per_unit or 0),
    )
    told = [most + _not_apart(able, [each.rate_per_s or 0 for each in able])]
    if by_price:
        units = [each.output_tokens_per_unit or 0 for each in by_price]
        told.append(f"cheapest per token{within}: {name(by_price[0])}{_not_apart(by_price, units)}")
    else:
        per_gpu = sorted(able, key=lambda each: -(each.rate_per_s or 0) / each.tp)
        told.append(f"most per GPU: {name(per_gpu[0])} (--prices says what is cheapest)")
    return [*told, *said, ""]


def _not_apart(ranked: Sequence[GpuResult], values: Sequence[float]) -> str:
    """Return which others are so near to the first that the model's usual error may turn their order."""
    first = ranked[0].error
    near = [
        name(each)
        for each, value in zip(ranked[1:], values[1:], strict=True)
        if first is not None and value * (1 + first.tpot_median / 100) >= values[0]
    ]
    return f"; the known error does not tell it from {', '.join(near)}" if near else ""


def name(result: GpuResult) -> str:
    """Return ``H100`` or ``2 x H100``."""
    return result.gpu.name if result.tp == 1 else f"{result.tp} x {result.gpu.name}"


def _column(result: GpuResult, asked: GpuQuestion, *, has_prices: bool) -> dict[str, str]:
    at, load = result.at_load, f"at {asked.rate_per_s:g} request{'' if asked.rate_per_s == 1 else 's'}/s"
    assert at is not None  # noqa: S101 - it starts
    rate, tokens = result.rate_per_s, result.output_tokens_per_s
    cells = {
        "": name(result),
        "KV cache, tokens": f"{result.num_kv_tokens:,}",
        "max_model_len": f"{result.max_model_len:,}{'*' if result.is_shortened else ''}",
        f"{load}: TTFT p50": _time(at.ttft_us[0], at.keeps_up),
        "  TTFT p99": _time(at.ttft_us[1], at.keeps_up),
        "  TPOT p50": _time(at.tpot_us[0], at.keeps_up),
        "  TPOT p99": _time(at.tpot_us[1], at.keeps_up),
        "capacity, requests/s": "none" if rate is None else f"{rate:.4g}",
    }
    capacity = result.capacity
    if capacity is not None:
        cells["  from"] = "-" if capacity.low is None else f"{capacity.low:.4g}"
        cells["  to"] = "-" if capacity.high is None else f"{capacity.high:.4g}"
        cells["  breaks first"] = capacity.limiting
        where = "at capacity" if rate is not None else "idle"
        cells |= {f"  {each.name} there": f"{marked(capacity.at_capacity, each)}" for each in asked.limits}
        cells["  there is"] = where
    cells["output tokens/s"] = "-" if tokens is None else f"{tokens:,.0f}"
    cells["  per GPU"] = "-" if tokens is None else f"{tokens / result.tp:,.0f}"
    if has_prices:
        per_unit = result.output_tokens_per_unit
        cells["price per hour"] = (
            "no price" if result.price_per_hour is None else f"{result.price_per_hour:g}"
        )
        cells["  tokens per price unit"] = "-" if per_unit is None else f"{per_unit:,.0f}"
    cells["known error of TTFT"] = _error(result.error, "ttft")
    cells["  of TPOT"] = _error(result.error, "tpot")
    return cells


def _time(value: float, keeps_up: bool) -> str:
    if not keeps_up:
        return "overload"
    return "-" if math.isnan(value) else shown_time(value)


def _error(error: KnownError | None, metric: str) -> str:
    if error is None:
        return "unknown"
    return error.text(metric) + ("" if error.is_of_this_gpu else "†")


def _footnotes(fit: Sequence[GpuResult], asked: GpuQuestion) -> list[str]:
    notes = []
    if asked.limits:
        within = ", ".join(f"{each.name} <= {shown_time(each.limit_us)}" for each in asked.limits)
        notes.append(f"capacity: the highest rate within {within}; 90 % interval over the draws")
    else:
        notes.append(
            "capacity: what a server with work at all times serves, whatever the latencies (--slo limits them)"
        )
    if any(each.is_shortened for each in fit):
        notes.append(
            "* as many tokens as the KV cache holds: vLLM would not start with the model's own max_model_len"
        )
    if any(each.error is not None for each in fit):
        notes.append(
            f"known error: how far {asked.latency_model} was off on measured servers that it was not fitted to: on "
            "half of them less than the first figure, on nine of ten less than the second (docs/validation.md)"
        )
    if any(each.error is not None and not each.error.is_of_this_gpu for each in fit):
        notes.append("† of H100 and H200 with this class of model; on this GPU nothing was measured")
    return notes


def document(
    results: Sequence[GpuResult], asked: GpuQuestion, *, num_requests: int, tool_version: str
) -> dict[str, object]:
    """Return the JSON document; rates in requests/s, times in µs, null where nothing is known."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool_version": tool_version,
        "model_config": asked.model_config,
        "latency_model": asked.latency_model,
        "rate": asked.rate_per_s,
        "slo_us": {each.name: each.limit_us for each in asked.limits},
        "num_requests": num_requests,
        "gpus": [_entry(each, asked.limits) for each in results],
    }


def _entry(result: GpuResult, limits: Sequence[RunLimit]) -> dict[str, object]:
    entry: dict[str, object] = {"gpu": result.gpu.name, "tp": result.tp, "starts": not result.refusal}
    if result.refusal:
        return {**entry, "reason": result.refusal}
    at, capacity, error = result.at_load, result.capacity, result.error
    assert at is not None  # noqa: S101 - it starts
    return {
        **entry,
        "num_kv_tokens": result.num_kv_tokens,
        "max_model_len": result.max_model_len,
        "keeps_up": at.keeps_up,
        "ttft_us": {"p50": or_null(at.ttft_us[0]), "p99": or_null(at.ttft_us[1])},
        "tpot_us": {"p50": or_null(at.tpot_us[0]), "p99": or_null(at.tpot_us[1])},
        "capacity": result.rate_per_s,
        "low": None if capacity is None else capacity.low,
        "high": None if capacity is None else capacity.high,
        "limiting": None if capacity is None else capacity.limiting,
        "values_us": None
        if capacity is None
        else {each.name: or_null(capacity.at_capacity.values_us[each.name]) for each in limits},
        "output_token_throughput": result.output_tokens_per_s,
        "price_per_hour": result.price_per_hour,
        "output_tokens_per_price_unit": result.output_tokens_per_unit,
        "known_error": None if error is None else error.document(),
    }
