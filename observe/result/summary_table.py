"""The result of an observation as a table for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final, cast

from observe.result.json_document import ClientSummary, Distribution, ObservedSummary
from traces import (
    AS_DRAWN,
    OVERLOADED,
    Attainment,
    Goodput,
    Quantity,
    four_digits,
    precision_rows,
    slow_phases,
    tail_text,
)
from traces.facts import AlignedRows, AnswerPart, TermRows, terminal_lines

_SHOWN_ERRORS = 5
_COLUMN = 9
_LENGTHS: Final = ("prompt_tokens", "output_tokens", "reasoning_tokens")
_STATUS_WORDS = {"cancelled": "cancelled as asked"}


def table(summary: ObservedSummary) -> str:
    """Return the summary as lines for a terminal."""
    return "\n".join(terminal_lines(summary_parts(summary), width=None))


def summary_parts(summary: ObservedSummary) -> list[AnswerPart]:
    """Return the summary for readers."""
    client = summary["client"]
    counts = ", ".join(
        f"{count:,} {_STATUS_WORDS.get(status, status)}" for status, count in summary["num_by_status"].items()
    )
    unsent = summary["num_planned"] - summary["num_requests"]
    facts = [
        ("requests", ", ".join([counts or "none", *_further(summary, unsent)])),
        ("rate", _rate_line(summary)),
        *_overload(summary),
        ("throughput", f"{four_digits(summary['request_throughput'])} requests/s"),
        *_throughput(summary),
        *_tail(summary),
        *_goodput_lines(summary["goodput"]),
        *_spec_decode_lines(summary["spec_decode"]),
        *_probe_lines(summary["probes"]),
        *_power_lines(summary["power"]),
        ("client", _verdict(client)),
    ]
    rows = [
        ("TTFT, ms", summary["ttft_us"]),
        ("TTFO, ms", summary["ttfo_us"]),
        ("TTFT from scheduled send, ms", summary["ttft_from_due_us"]),
        ("E2E, ms", summary["e2e_us"]),
        ("ITL, ms", summary["itl_us"]),
        ("TPOT, ms", summary["tpot_us"]),
        ("queue, ms", summary["queue_us"]),
        ("wave, ms", summary["wave_us"]),
    ]
    errors = [f"  {count:,} times: {message}" for message, count in _most_common(summary["errors"])]
    lengths = [(name.replace("_", " "), summary[name]) for name in _LENGTHS]
    shown = [
        *((name, values, 1e3) for name, values in rows),
        *((name, values, 1.0) for name, values in lengths),
    ]
    shown = [each for each in shown if each[1]["mean"] is not None] + _phase_rows(summary)
    label = max((len(name) for name, _, _ in shown), default=0)
    head = ["", "mean", "p50", "p90", "p95", "p99"]
    figures = AlignedRows([head, *(_row(*each) for each in shown)], [-label, *[_COLUMN] * 5])
    known = precision_rows(summary["p99_precision"], requests_per_s=summary["request_throughput"])
    return [TermRows(facts), *errors, figures, *([TermRows(known)] if known else [])]


def _phase_rows(summary: ObservedSummary) -> list[tuple[str, Distribution, float]]:
    """Return a row for each phase of HTTP before the answer that took long, with how many requests had it."""
    phases = {name: Quantity(**each) for name, each in summary["http_phases_us"].items()}
    shown = [(f"{words} of {each.n:,}, ms", each) for words, each in slow_phases(phases)]
    return [(name, cast(Distribution, asdict(each)), 1e3) for name, each in shown]


def _throughput(summary: ObservedSummary) -> list[tuple[str, str]]:
    """Return the lines of what came of a request: its tokens, or where it generates none its inputs."""
    tools, inputs = summary["num_called_tools"], summary["num_inputs"]
    if inputs is not None:
        said = f"{four_digits(summary['input_throughput'])} inputs/s, {inputs:,} a request"
        return [("", said), ("", f"{four_digits(summary['prompt_token_throughput'])} prompt tokens/s")]
    choices = "" if summary["num_choices"] is None else f", {summary['num_choices']} answers a prompt"
    lines = [("", f"{four_digits(summary['output_token_throughput'])} output tokens/s{choices}")]
    return lines if tools is None else [*lines, ("tools", f"{tools:,} answers called one")]


def _overload(summary: ObservedSummary) -> list[tuple[str, str]]:
    is_overloaded = any(each["kind"] == OVERLOADED for each in summary["findings"])
    return [("verdict", "OVERLOADED: more is sent than is answered")] if is_overloaded else []


def _tail(summary: ObservedSummary) -> list[tuple[str, str]]:
    """Return the line that says why a load with times of its own has a throughput below the rate that was sent."""
    is_timed = summary["client"]["rate_asked_per_s"] is not None
    said = tail_text(summary["duration_us"], summary["sending_us"]) if is_timed else None
    return [] if said is None else [("", said)]


def _rate_line(summary: ObservedSummary) -> str:
    achieved, asked = summary["client"]["rate_achieved_per_s"], summary["client"]["rate_asked_per_s"]
    of_sessions = " (sessions)" if summary["load"] == "sessions" else ""
    if asked is None:
        return f"{four_digits(achieved)}/s sent, load: {summary['load']}{of_sessions}"
    rate = summary["client"]["rate_per_s"]
    is_met = rate is not None and abs(asked / rate - 1) < AS_DRAWN
    drawn = "" if rate is None or of_sessions or is_met else f" (drawn for a rate of {rate:g}/s)"
    return f"{four_digits(achieved)}/s sent, {four_digits(asked)}/s scheduled{of_sessions}{drawn}"


def _further(summary: ObservedSummary, unsent: int) -> list[str]:
    said = (
        (summary["num_retried"], "retried"),
        (summary["num_warmup"], "warm-up"),
        (summary["num_guided"], "guided"),
        (summary["num_length_capped"], "cut short by max_model_len"),
        (unsent, "not sent"),
    )
    return [f"{count:,} {words}" for count, words in said if count]


def _goodput_lines(good: Goodput | None) -> list[tuple[str, str]]:
    """Return a line for all requests that have latency limits, and one for each service class."""
    if good is None:
        return []
    limits = ", ".join(f"{name} ≤ {most_us / 1e3:g} ms" for name, most_us in good["slo_us"].items())
    whose = f" ({limits})" if limits else ""
    lines = [("goodput", f"{_attainment(good)}{whose}")]
    if good["num_without_target"]:
        lines.append(
            ("", f"{good['num_without_target']:,} requests have no latency limit and are not counted")
        )
    if good["num_not_measured"]:
        unseen = f"{good['num_not_measured']:,} requests have a limit on a latency that was not measured"
        lines.append(("", f"{unseen} and are not counted"))
    return [*lines, *(("", f"{name}: {_attainment(each)}") for name, each in good["by_class"].items())]


def _attainment(each: Attainment) -> str:
    by_latency = ", ".join(f"{name} {frac:.1%}" for name, frac in each["met_frac"].items())
    share = each["good_frac"]
    if share is None:
        return "not known: no request has every latency that is limited"
    met = f"{share:.1%} of {each['num_requests']:,} met all limits: {by_latency}"
    return f"{four_digits(each['good_per_s'])} requests/s, {met}"


def _verdict(client: ClientSummary) -> str:
    lag = client["own_lag_us"].get("p99")
    own = "" if lag is None else f"own lag p99 {lag / 1e3:,.2f} ms, "
    loop = client["loop_lag_us"].get("p99", 0.0) / 1e3
    text = f"{own}loop lag p99 {loop:,.2f} ms, CPU {client['cpu_frac'] or 0:.0%} of a core"
    if client["limited"]:
        return f"LIMITED THE RUN ({client['reason']}): {text}"
    if client["verdict"] == "late":
        most = client["ttft_too_long_us"].get("p99", 0.0)
        by = f"; TTFT may be up to {most / 1e3:.3g} ms too long (p99)" if most else ""
        return f"LATE by up to {client['late_by_us'] / 1e3:.3g} ms (p99), at the load's pace{by}: {text}"
    return f"kept up: {text}"


def _most_common(errors: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(errors.items(), key=lambda pair: -pair[1])[:_SHOWN_ERRORS]


def _spec_decode_lines(spec: dict[str, Any] | None) -> list[tuple[str, str]]:
    if spec is None:
        return []
    rates = ", ".join(f"{rate:.1%}" for rate in spec["accepted_frac_per_position"])
    return [
        (
            "speculation",
            f"{spec['mean_accepted_length']:.3g} tokens per step, "
            f"{spec['num_accepted_tokens']:,} of {spec['num_draft_tokens']:,} drafted tokens accepted"
            + (f"; by position: {rates}" if rates else ""),
        )
    ]


def _probe_lines(probes: dict[str, Any] | None) -> list[tuple[str, str]]:
    if probes is None:
        return []
    said = f"{probes['num_probes']:,} at {probes['rate_per_s']:g}/s, {probes['num_failed']:,} failed"
    latency = probes["latency_us"]
    if latency:
        times = ", ".join(
            f"{name} {four_digits(latency[name] / 1e3)}" for name in ("mean", "p50", "p90", "p99")
        )
        said += f"; latency, ms: {times}"
    return [("probes", said)]


def _power_lines(power: dict[str, Any] | None) -> list[tuple[str, str]]:
    if power is None:
        return []
    whose = f"{power['num_gpus']} GPUs" if power["num_gpus"] != 1 else "1 GPU"
    if power["energy_j"] is None:
        return [("energy", f"not known: readings of {whose} cover {power['covered_frac']:.0%} of the run")]
    said = f"{four_digits(power['energy_j'])} J, {four_digits(power['mean_w'])} W of {whose}"
    per_joule = power["output_tokens_per_j"]
    return [("energy", said if per_joule is None else f"{said}, {four_digits(per_joule)} output tokens/J")]


def _row(name: str, values: Distribution, divisor: float) -> list[str]:
    cells = (values["mean"], values["p50"], values["p90"], values["p95"], values["p99"])
    return [name, *(four_digits(None if cell is None else cell / divisor) for cell in cells)]
