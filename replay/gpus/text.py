"""A comparison of GPUs as a table for a terminal and as a JSON document."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from replay.capacity.text import capacity_facts
from replay.gpus.comparison import AtLoad, GpuQuestion, GpuResult
from replay.profiles.known_errors import KnownError
from traces import RunLimit, shown_time
from traces.facts import (
    AnswerPart,
    Fact,
    SideBySide,
    TermRows,
    columns_of,
    count,
    document,
    of_limit,
    per_s,
    whole,
)


def gpus_parts(results: Sequence[GpuResult], asked: GpuQuestion) -> list[AnswerPart]:
    """Return the table, why the others do not start, and the known error of the figures."""
    fit = [each for each in results if not each.refusal]
    has_prices = any(each.price_per_hour is not None for each in fit)
    columns = columns_of(_facts(each, asked, has_prices=has_prices) for each in fit)
    shown: list[AnswerPart] = [SideBySide(columns), ""] if fit else []
    refused = [(name(each), f"does not start: {each.refusal}") for each in results if each.refusal]
    return [*shown, TermRows(refused), *_conclusion(fit, asked), *_footnotes(fit, asked)]


def _conclusion(fit: Sequence[GpuResult], asked: GpuQuestion) -> list[str]:
    """Return which serves most, which costs least, and which the limits rule out; nothing for a single GPU."""
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
    if short:
        within += f", of the {len(able)} that are ranked"
    if ahead := _ahead(short, able, lambda each: each.rate_per_s):
        told = [f"serves most: not known: {ahead}"]
    else:
        rates = [each.rate_per_s or 0 for each in able]
        told = [f"serves most{within}: {name(able[0])}, {rates[0]:.4g} requests/s{_not_apart(able, rates)}"]
    by_price = sorted(
        (each for each in able if each.output_tokens_per_unit),
        key=lambda each: -(each.output_tokens_per_unit or 0),
    )
    if by_price and (ahead := _ahead(short, by_price, lambda each: each.output_tokens_per_unit)):
        told.append(f"cheapest per token: not known: {ahead}")
    elif by_price:
        units = [each.output_tokens_per_unit or 0 for each in by_price]
        told.append(f"cheapest per token{within}: {name(by_price[0])}{_not_apart(by_price, units)}")
    else:
        per_gpu = sorted(able, key=lambda each: -(each.rate_per_s or 0) / each.tp)
        told.append(f"most per GPU: {name(per_gpu[0])} (--prices says what is cheapest)")
    return [*told, *said, ""]


def _ahead(
    short: Sequence[GpuResult], ranked: Sequence[GpuResult], value_of: Callable[[GpuResult], float | None]
) -> str:
    """Return that GPUs whose runs are too short come out before the best of the others; "" where none does."""
    names = [name(each) for each in short if (value_of(each) or 0) > (value_of(ranked[0]) or 0)]
    return (
        f"{', '.join(names)} may be, before {name(ranked[0])}, but the runs are too short to tell"
        if names
        else ""
    )


def _not_apart(ranked: Sequence[GpuResult], values: Sequence[float]) -> str:
    """Return which others are so near to the first that the model's error turns their order in one of twenty or more.

    Of normal errors that are independent: the 90th percentiles of their absolute values, added as squares.
    """
    first = ranked[0].error
    near = []
    for each, value in zip(ranked[1:], values[1:], strict=True):
        if first is not None and each.error is not None:
            both = math.hypot(first.tpot_p90, each.error.tpot_p90) / 100
            near += [name(each)] if value * (1 + both) >= values[0] else []
    return f"; the known error does not tell it from {', '.join(near)}" if near else ""


def name(result: GpuResult) -> str:
    """Return ``H100`` or ``2 x H100``."""
    return result.gpu.name if result.tp == 1 else f"{result.tp} x {result.gpu.name}"


def _facts(result: GpuResult, asked: GpuQuestion, *, has_prices: bool) -> list[Fact]:
    """Return what a GPU on which the server starts does: at the load, at most, and per price."""
    at, load = result.at_load, f"at {asked.rate_per_s:g} request{'' if asked.rate_per_s == 1 else 's'}/s"
    assert at is not None  # noqa: S101 - it starts
    tokens, error = result.output_tokens_per_s, result.error
    cut = "*" if result.is_shortened else ""
    price, per_unit = ("price per hour", "  tokens per unit of currency") if has_prices else (None, None)
    return [
        Fact("", "", name(result)),
        Fact("num_kv_tokens", "KV cache, tokens", result.num_kv_tokens, count),
        Fact("max_model_len", "max_model_len", result.max_model_len, count, note=cut),
        Fact("keeps_up", None, at.keeps_up),
        _time("ttft_us.p50", f"{load}: TTFT p50", at.ttft_us[0], at),
        _time("ttft_us.p99", "  TTFT p99", at.ttft_us[1], at),
        _time("tpot_us.p50", "  TPOT p50", at.tpot_us[0], at),
        _time("tpot_us.p99", "  TPOT p99", at.tpot_us[1], at),
        *_capacity(result, asked.limits),
        Fact("output_token_throughput", "output tokens/s", tokens, whole),
        Fact("", "  per GPU", tokens and tokens / result.tp, whole),
        Fact("price_per_hour", price, result.price_per_hour, "{:g}".format, none="no price"),
        Fact("output_tokens_per_price_unit", per_unit, result.output_tokens_per_unit, whole),
        Fact("kv_doubt", None, None if result.kv_doubt is None else result.kv_doubt.document()),
        Fact("known_error", None, None if error is None else error.document()),
        Fact("", "known error of TTFT", error, partial(_error, metric="ttft"), none="unknown"),
        Fact("", "  of TPOT", error, partial(_error, metric="tpot"), none="unknown"),
    ]


def _time(key: str, term: str, value_us: float, at: AtLoad) -> Fact:
    if at.keeps_up:
        return Fact(key, term, value_us, shown_time)
    return Fact(key, term, value_us, lambda _: "overload", none="overload")


def _capacity(result: GpuResult, limits: Sequence[RunLimit]) -> list[Fact]:
    """Return the highest rate, and where the load is limited what limits it and the latencies there."""
    found, rate = (
        result.capacity,
        Fact("capacity", "capacity, requests/s", result.rate_per_s, per_s, none="none"),
    )
    if found is None:
        return [rate, *(Fact(key, None, None) for key in ("low", "high", "limiting", "values_us"))]
    at = found.at_capacity.values_us
    return [
        *capacity_facts(found, "capacity"),
        Fact("limiting", "  breaks first", found.limiting),
        *(of_limit(at[each.name], each, term=f"  {each.name} there") for each in limits),
        Fact("", "  there is", "idle" if result.rate_per_s is None else "at capacity"),
    ]


def _error(error: KnownError, metric: str) -> str:
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
    doubts = [(each, each.kv_doubt.line()) for each in fit if each.kv_doubt is not None]
    notes += [f"{name(each)}: {line}" for each, line in doubts if line is not None]
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
        notes.append(
            "† of this class of model on H100, H200, B200 and B300; on this GPU nothing was measured"
        )
    if any(each.error is None for each in fit):
        notes.append("unknown: no server with such layers, or with this latency model, was measured")
    return notes


def entry_of(result: GpuResult, asked: GpuQuestion) -> dict[str, object]:
    """Return a GPU as the JSON document has it; rates in requests/s, times in µs, null where nothing is known."""
    entry: dict[str, object] = {"gpu": result.gpu.name, "tp": result.tp, "starts": not result.refusal}
    if result.refusal:
        return {**entry, "reason": result.refusal}
    return {**entry, **document(_facts(result, asked, has_prices=True))}
