"""The summary of a simulation for a terminal: the table of ``replay`` and ``run``, and the lines beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from replay.numbers.distribution import Distribution
from replay.sessions.session_summary import needs_rows
from replay.trace.group_summary import group_parts
from replay.trace.kv_offload import hits_by_tier, offload_text
from replay.trace.operator_times import operator_grids
from replay.trace.simulation_summary import SimulationSummary
from replay.verdict.judged import why_undecided
from replay.verdict.sentences import long_waits, verdict_sentence
from traces import MOST_FAILED, four_digits, in_unit, precision_rows, shown_time, tail_text, unit_of
from traces.facts import AlignedRows, AnswerPart, TermRows, frac

COLUMN = 9
"""Width of a column of figures: the table fits into 60 columns."""


def summary_parts(summary: SimulationSummary, *, unanswered: Sequence[str] = ()) -> list[AnswerPart]:
    """Return the summary for a terminal; ``unanswered``: keys that the twin has no answer to."""
    counts = ", ".join(f"{count:,} {status}" for status, count in summary["num_by_status"].items())
    hit = summary["prefix_hit_frac"]
    facts = [
        *unanswered_rows(unanswered),
        ("requests", counts or "none"),
        *(("", f"{count:,}: {reason}") for reason, count in summary["num_by_reason"].items()),
        ("simulated", f"{four_digits(summary['duration_us'] / 1e6)} s"),
        *_offered(summary),
        ("throughput", f"{four_digits(summary['request_throughput'])} requests/s"),
        ("", f"{four_digits(summary['output_token_throughput'])} output tokens/s"),
        *_tail(summary),
        ("prefix hits", "no prompt was scheduled" if hit is None else f"{hit:.1%} of prompt tokens"),
        *_optional_facts(summary),
        ("preemptions", f"{summary['num_preemptions']:,}"),
        *_no_blocks(summary),
        ("steps", _steps(summary)),
    ]
    rows = [
        ["", "mean", "p50", "p90", "p95", "p99"],
        _time_row("TTFT", summary["ttft_us"]),
        _time_row("E2E", summary["e2e_us"]),
        _time_row("ITL", summary["itl_us"]),
        _time_row("TPOT", summary["tpot_us"]),
        _time_row("queue", summary["queue_us"]),
        _row("prompt tok.", summary["prompt_tokens"]),
        _row("output tok.", summary["output_tokens"]),
    ]
    parts: list[AnswerPart] = [
        TermRows(facts),
        AlignedRows(rows, [-12, *[COLUMN] * 5]),
        *_ttft_parts(summary),
        *_precision_parts(summary),
        *_goodput_parts(summary),
    ]
    parts += group_parts(summary["groups"])
    if (needs := summary["kv_needed"]) is not None:
        parts.append(TermRows(needs_rows(needs)))
    if (times := summary["operator_times"]) is not None:
        parts += ["", *operator_grids(times)]
    return parts


def _ttft_parts(summary: SimulationSummary) -> list[AnswerPart]:
    """Return the line that says where the time to the first token goes; none without first tokens."""
    parts, mean = summary["ttft_parts_us"], summary["ttft_us"]["mean"]
    if parts is None or mean is None:
        return []
    told = f"mean {shown_time(mean)}: {shown_time(parts['queue'])} in the queue, "
    told += f"{shown_time(parts['step_under_way'])} for the step under way, "
    told += f"{shown_time(parts['prefill'])} prefill, {shown_time(parts['front_end'])} front end"
    return [TermRows([("of TTFT", told)])]


def unanswered_rows(keys: Sequence[str]) -> list[tuple[str, str]]:
    """Return the term that warns of keys without an answer; nothing if every setting has one."""
    return [("*", f"no answer here to {', '.join(keys)} (see the note)")] if keys else []


def _no_blocks(summary: SimulationSummary) -> list[tuple[str, str]]:
    """Return the line that says how often KV blocks were missing, none if they never were."""
    failures = summary["num_kv_allocation_failures"]
    return [("KV full", f"{failures:,} times blocks were needed and not free")] if failures else []


def speed_line(summary: SimulationSummary) -> str:
    """Return how long the simulation took; it differs from run to run, so it is not in the table."""
    seconds, cpu = summary["duration_us"] / 1e6, summary["engine_cpu_s"]
    faster = f", {seconds / cpu:,.0f} times faster than real time" if cpu > 0 else ""
    return f"simulated {four_digits(seconds)} s in {four_digits(cpu)} s of CPU{faster}"


def _steps(summary: SimulationSummary) -> str:
    steps = summary["steps"]
    means = (steps["num_seqs"]["mean"], steps["num_prefill_tokens_mean"], steps["num_decode_tokens_mean"])
    told = [
        f"{four_digits(mean)} {what}"
        for mean, what in zip(means, ("requests", "prompt tokens", "decode tokens"), strict=True)
        if mean is not None
    ]
    return f"{summary['num_steps']:,}" + (f", on average of {', '.join(told)}" if told else "")


def has_idle_end(summary: SimulationSummary) -> bool:
    """Return whether a good part of an open loop's time went by after its last request was sent."""
    return bool(_tail(summary))


def _tail(summary: SimulationSummary) -> list[tuple[str, str]]:
    """Return the line that says why a server that keeps up has a throughput below the rate that was offered."""
    if (
        summary["offered_rate_per_s"] is None
        or summary["measured"] is not None
        or summary["incomplete"] is not None
    ):
        return []
    said = tail_text(summary["duration_us"], summary["sending_us"])
    return [] if said is None else [("", said)]


def _offered(summary: SimulationSummary) -> list[tuple[str, str]]:
    """Return the lines of the offered load, and whether the server kept up; none where answers set the pace."""
    offered = summary["offered_rate_per_s"]
    facts = [] if offered is None else [("offered", f"{four_digits(offered)} requests/s")]
    if (load := summary["load"]) is not None and load["counts"] == "sessions":
        facts = [("offered", f"{four_digits(load['sent_per_s'])} sessions/s (what --rate counts here)")]
    if summary["verdict"] is None:
        why = None if offered is None else why_no_verdict(summary)
        return facts if why is None else [*facts, ("verdict", why)]
    said = verdict_sentence(
        summary["verdict"],
        summary["verdict_stretches"] or (),
        good_frac=None if summary["goodput"] is None else summary["goodput"]["good_frac"],
        waits=waits_of(summary),
        sending_us=summary["sending_us"],
    )
    return [*facts, ("verdict", said)]


def why_no_verdict(summary: SimulationSummary) -> str | None:
    """Return why a run has no verdict though no answer sets its pace, None where requests' lengths are not why."""
    num_refused = summary["num_by_status"].get("rejected", 0)
    return why_undecided(num_refused=num_refused, num_sent=sum(summary["num_by_status"].values()))


def waits_of(summary: SimulationSummary) -> str | None:
    """Return that requests wait for long, in words; None where few do."""
    load = summary["load"]
    return None if load is None else long_waits(late_frac=load["late_frac"], waits_most=load["waits_most"])


def _optional_facts(summary: SimulationSummary) -> list[tuple[str, str]]:
    """Return the lines that only some runs have."""
    facts = []
    if (span := summary["measured"]) is not None:
        window = f"{four_digits(span['from_us'] / 1e6)} s to {four_digits(span['to_us'] / 1e6)} s"
        facts.append(("measured", f"{span['num_requests']:,} requests sent from {window}"))
    if summary["num_warmup"]:
        facts.append(("warm-up", f"{summary['num_warmup']:,} requests, not in the latencies"))
    if summary["num_length_capped"]:
        facts.append(("cut short", f"{summary['num_length_capped']:,} answers, by engine.max_model_len"))
    if (cut := summary["incomplete"]) is not None:
        queued = f"{cut['num_in_gateway']:,} in the gateway, " if cut["num_in_gateway"] else ""
        facts.append(
            (
                "at the end",
                f"{cut['num_running']:,} requests running, {cut['num_waiting']:,} waiting, {queued}"
                f"{cut['num_unsent']:,} not sent yet",
            )
        )
    if (decoded := summary["speculative"]) is not None and decoded["acceptance_frac"] is not None:
        facts.append(
            (
                "speculative",
                f"{decoded['num_draft_tokens']:,} tokens drafted, {decoded['acceptance_frac']:.1%} accepted, "
                f"mean length {decoded['mean_accepted_length']:.2f}",
            )
        )
    if (tier := summary["kv_offload"]) is not None:
        facts.append(("KV offload", offload_text(tier)))
        facts.append(("hits", hits_by_tier(tier)))
    return facts


def _precision_parts(summary: SimulationSummary) -> list[AnswerPart]:
    """Return how well the 99th percentiles are known."""
    medians = {name: summary[name]["p50"] for name in ("ttft_us", "itl_us", "e2e_us")}
    per_s = summary["offered_rate_per_s"] or summary["request_throughput"]
    rows = precision_rows(summary["p99_precision"], medians, requests_per_s=per_s)
    return [TermRows(rows)] if rows else []


def _goodput_parts(summary: SimulationSummary) -> list[AnswerPart]:
    """Return a row per service class with limits, and one for all."""
    good = summary["goodput"]
    if good is None:
        return []
    rows = [("SLO", "requests", "met all", "goodput/s", "  by latency")]
    for name, each in {"all": good, **good["by_class"]}.items():
        share = "-" if each["good_frac"] is None else frac(each["good_frac"])
        by_latency = ", ".join(f"{metric} {met:.1%}" for metric, met in each["met_frac"].items())
        told = (f"{each['num_requests']:,}", share, four_digits(each["good_per_s"]))
        rows.append((name, *told, f"  {by_latency}"))
    return ["", AlignedRows(rows, (-12, COLUMN, COLUMN, COLUMN + 2, 0))]


def failures_note(num_by_status: Mapping[str, int]) -> str | None:
    """Return the line for requests that were not answered, if they are more than one in a hundred."""
    failed = {
        status: n
        for status, n in num_by_status.items()
        if status not in ("ok", "incomplete", "cancelled") and n
    }
    num, num_failed = sum(num_by_status.values()), sum(failed.values())
    if num_failed <= MOST_FAILED * num or num_failed == num:
        return None
    counts = ", ".join(f"{n:,} {status}" for status, n in failed.items())
    return (
        f"{num_failed / num:.1%} of the requests are not answered ({counts}): every latency is of the others"
    )


def why_none_finished(summary: SimulationSummary) -> str:
    """Return the line that says why no request of a simulation finished, by their status."""
    counts = ", ".join(f"{count:,} {status}" for status, count in summary["num_by_status"].items())
    reasons = "; ".join(summary["num_by_reason"])
    return f"no request finished: {counts}" + (f" ({reasons})" if reasons else "")


def _time_row(name: str, values: Distribution) -> list[str]:
    """Return a row of times in the unit that suits the median: ms, from 10 s on s, from 10 minutes on min."""
    unit = unit_of(values["p50"] or 0.0)
    shown = [in_unit(value, unit) for value in (values["mean"], *_percentiles(values))]
    return [f"{name}, {unit}", *shown]


def _row(name: str, values: Distribution) -> list[str]:
    return [name, *map(four_digits, (values["mean"], *_percentiles(values)))]


def _percentiles(values: Distribution) -> tuple[float | None, ...]:
    return values["p50"], values["p90"], values["p95"], values["p99"]
