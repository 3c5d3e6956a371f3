"""What a finished run shows that makes its numbers others than the server's: one line each, with a stable key."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from traces.findings.clocks_apart import MOST_US, clocks_apart, off_by_us
from traces.findings.cold_start import cold_start
from traces.findings.late_client import early_us, ttft_too_long_us
from traces.findings.saturation import saturation_of
from traces.findings.warm_cache import warm_cache
from traces.header import RunFinding
from traces.measured.finish_reasons import failure_status
from traces.measured.stream_shape import StreamShape, stream_shape, tokens_of_choice
from traces.metrics import finished_ok, prompt_tokens
from traces.units import shown_time
from traces.warm_up import without_warmup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traces.header import Header, ServerInfo
    from traces.trace import Trace

HELD_BACK: Final = "stream_held_back"
CLUMPS: Final = "stream_in_clumps"
FAILED: Final = "finish_reason"
SHORT: Final = "fewer_tokens"
WARM: Final = "warm_prefix_cache"
COLD: Final = "cold_start"
NO_USAGE: Final = "no_usage"
HIDDEN: Final = "hidden_reasoning"
ENGINES: Final = "several_engines"
LATE: Final = "late_client"
OVERLOADED: Final = "overloaded"
CLOCKS: Final = "clocks_apart"

KINDS: Final = {
    HELD_BACK: "events of an answer that came all in one read: TTFT, TPOT and ITL of these answers are empty",
    CLUMPS: "events that came several in one read: ITL, and TTFT where the first read held several, are empty",
    FAILED: "answers that the server ended for an error: they are in no latency",
    SHORT: "answers shorter than asked although the end of text was to be ignored",
    WARM: "prompts meant to be new that the server found in its prefix cache",
    COLD: "first requests that were slower than the rest",
    HIDDEN: "reasoning that the server counts and does not stream: TTFT runs to the first text behind it",
    NO_USAGE: "answers whose tokens the server did not count, or counted as 0",
    LATE: "a client that was late: the first token may have come earlier than its time says",
    ENGINES: "several engines that answer behind one address",
    CLOCKS: "machines whose clocks are not known well enough to say which of them sent first",
    OVERLOADED: "more was sent than answered, so that latencies grew as long as the run lasted",
}
"""Every kind of finding, and what it says."""

LEAST_FRAC: Final = 0.02
"""A smaller share of answers whose events came together is a busy client's, and is not told."""
_MOST_NAMES: Final = 4


def findings_of(trace: Trace) -> tuple[RunFinding, ...]:
    """Return the findings on a measured trace, without its warm-up; none on a workload or a simulation.

    Those that its header has, and that its rows do not show any more, are kept.
    """
    if trace.header.mode != "real":
        return ()
    if len(trace) == 0:
        return trace.header.findings
    counted = without_warmup(trace)
    shape = stream_shape(counted)
    found = [
        *_overloaded(counted),
        *_streams(counted, shape),
        *_failed(counted),
        *_short(counted),
        *_hidden(counted),
        *_warm(counted),
        *_cold(counted),
        *_no_usage(counted),
        *_late(counted),
        *_clocks(trace),
        *several_engines(counted.header.server, num_requests=len(counted)),
    ]
    kinds = {each.kind for each in found}
    return (*found, *(each for each in trace.header.findings if each.kind not in kinds))


def finding_lines(trace: Trace) -> tuple[str, ...]:
    """Return the findings' lines."""
    return tuple(each.text for each in findings_of(trace))


def marked(trace: Trace) -> Trace:
    """Return the trace with its findings in its header."""
    return replace(trace, header=replace(trace.header, findings=findings_of(trace)))


def found_in(header: Header, kind: str) -> RunFinding | None:
    """Return the header's finding of a kind."""
    return next((each for each in header.findings if each.kind == kind), None)


def _overloaded(trace: Trace) -> list[RunFinding]:
    found = saturation_of(trace)
    if found.state != "saturated" or found.unserved_frac.value is None:  # all at once: a backlog by design
        return []
    text = (
        f"the server was overloaded: {found.reason}. TTFT and E2E grow as long as such a run lasts; only its "
        "throughput is the server's own"
    )
    return [RunFinding(kind=OVERLOADED, num=found.backlog or 0, of=found.n, text=text)]


def _streams(trace: Trace, shape: StreamShape) -> list[RunFinding]:
    judged = shape.can_be_judged & finished_ok(trace)
    held, clumps = judged & shape.held_back, judged & shape.in_clumps
    of, found = int(judged.sum()), []
    client = trace.header.client
    is_late = client is not None and (client.late or client.limited)
    cause = "the client itself read them late, " if is_late else ""
    if held.sum() > LEAST_FRAC * of:
        num = int(held.sum())
        text = (
            f"{num:,} of {of:,} answers came all at once, in one read each: {cause}a proxy on the way holds the stream "
            "back, or the server does not stream. Their TTFT, TPOT and ITL were not measured and are left out; E2E is "
            "right"
        )
        found.append(RunFinding(kind=HELD_BACK, num=num, of=of, text=text))
    if clumps.sum() > LEAST_FRAC * of:
        num, events = int(clumps.sum()), float(np.mean((shape.num_events / shape.num_reads)[clumps]))
        late = int((clumps & ~shape.has_ttft).sum())
        text = (
            f"{num:,} of {of:,} answers came in clumps, {events:.3g} events a read: {cause}a proxy on the way "
            "buffers the stream, or the server sends tokens in bundles. Their ITL was not measured and is left out"
            + (f", as is TTFT of {late:,}" if late else "")
        )
        found.append(RunFinding(kind=CLUMPS, num=num, of=of, text=text))
    return found


def _failed(trace: Trace) -> list[RunFinding]:
    reasons = Counter(
        str(reason)
        for reason in trace.cells("finish_reason").known().tolist()
        if failure_status(str(reason)) is not None
    )
    if not reasons:
        return []
    num, of = sum(reasons.values()), len(trace)
    named = ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common(_MOST_NAMES))
    text = f"{num:,} of {of:,} answers were given up by the server (finish_reason: {named}); they are in no latency"
    return [RunFinding(kind=FAILED, num=num, of=of, text=text)]


def _short(trace: Trace) -> list[RunFinding]:
    client = trace.header.client
    if client is None or not client.ignore_eos:
        return []
    got, asked = trace.cells("output_tokens"), trace.cells("max_tokens")
    most = trace.header.server.max_model_len
    has_no_room = (
        np.ones(len(trace), np.bool_) if most is None else prompt_tokens(trace) + asked.values > most
    )
    free = trace.cells("guided").values | (trace.cells("length_capped").values & has_no_room)
    judged = finished_ok(trace) & got.is_known & asked.is_known & ~free
    own = tokens_of_choice(trace)
    short = judged & (own < asked.values)
    num, of = int(short.sum()), int(judged.sum())
    if not num:
        return []
    share = float(own[short].sum() / asked.values[short].sum())
    text = (
        f"{num:,} of {of:,} answers are shorter than asked, {share:.0%} of the tokens, although ignore_eos was sent: "
        "the server does not keep to it, and the load is not the one that was asked for"
    )
    return [RunFinding(kind=SHORT, num=num, of=of, text=text)]


def _hidden(trace: Trace) -> list[RunFinding]:
    tokens, ok = trace.cells("hidden_tokens").values, finished_ok(trace)
    rows = ok & (tokens > 0)
    num, of = int(rows.sum()), int(ok.sum())
    if not num:
        return []
    text = (
        f"{num:,} of {of:,} answers have reasoning that was not streamed, {int(tokens[rows].sum()):,} tokens: TTFT "
        "runs to the first text behind it, and TPOT is of the tokens behind that"
    )
    return [RunFinding(kind=HIDDEN, num=num, of=of, text=text)]


def _warm(trace: Trace) -> list[RunFinding]:
    cache = warm_cache(trace)
    if cache is None:
        return []
    expected = (
        "although the load shares no prefix"
        if cache.shared_frac == 0
        else f"of which the load itself repeats {cache.shared_frac:.0%}"
    )
    text = (
        f"{cache.found_frac:.0%} of the prompts' tokens were found in the server's prefix cache ({cache.source}), "
        f"{expected}: somebody sent these prompts before. TTFT is that of a warm cache; another --prompt-salt, or "
        "none, makes new prompts"
    )
    return [RunFinding(kind=WARM, num=cache.num, of=cache.of, text=text)]


def _cold(trace: Trace) -> list[RunFinding]:
    cold = cold_start(trace)
    if cold is None:
        return []
    first = f"first {cold.num:,} requests are" if cold.num > 1 else "first request is"
    text = (
        f"the {first} slower than the rest: TTFT {shown_time(cold.ttft_us)} in the median, then "
        f"{shown_time(cold.later_us)}: the server was not warm. --warmup {cold.num} takes them out"
    )
    return [RunFinding(kind=COLD, num=cold.num, of=cold.of, text=text)]


def _no_usage(trace: Trace) -> list[RunFinding]:
    ok, client = finished_ok(trace), trace.header.client
    unknown = int((ok & ~trace.cells("output_tokens").is_known).sum())
    if client is not None and client.num_inputs is not None:
        return []  # nothing was generated
    stated = 0 if client is None else client.num_without_usage or 0
    num, of = max(unknown, stated), int(ok.sum())
    if not num:
        return []
    taken = "their number of tokens is unknown"
    if unknown < num:
        taken = "their tokens are max_tokens where finish_reason is length, else one an event"
        taken += f"; of {unknown:,} they are unknown" if unknown else ""
    text = f"{num:,} of {of:,} answers have no usage, or one of zeros: {taken}"
    return [RunFinding(kind=NO_USAGE, num=num, of=of, text=text)]


def _late(trace: Trace) -> list[RunFinding]:
    quantiles = ttft_too_long_us(trace)
    if not quantiles:
        return []
    ok = finished_ok(trace)
    num, of = int((early_us(trace)[ok] > 0).sum()), int(ok.sum())
    mean = shown_time(float(early_us(trace)[ok].mean()))
    most = f"up to {shown_time(quantiles['p99'])} too long (p99; mean {mean})" if quantiles["p99"] else ""
    text = (
        f"the client was late: the first token of {num:,} of {of:,} answers was read together with further ones, so "
        f"TTFT may be {most or f'too long, by {mean} on average'}. A quieter machine, or --processes N, would tell"
    )
    return [RunFinding(kind=LATE, num=num, of=of, text=text)]


def _clocks(trace: Trace) -> list[RunFinding]:
    client = trace.header.client
    apart = () if client is None else clocks_apart(client.processes)
    if client is None or not apart:
        return []
    text = (
        f"the clocks of {len(apart)} of {len(client.processes)} machines are known to "
        f"{shown_time(max(map(off_by_us, apart)))}, drift included, and not to {shown_time(MOST_US)}: their requests' "
        "times may be off by so much against the others'. Latencies are each of one clock, and right"
    )
    return [
        RunFinding(
            kind=CLOCKS,
            num=sum(each.num_sent or 0 for each in apart),
            of=sum(each.num_sent or 0 for each in client.processes),
            text=text,
        )
    ]


def several_engines(server: ServerInfo, *, num_requests: int) -> Sequence[RunFinding]:
    """Return the finding on an address behind which several engines answer; nothing of one."""
    number = server.num_engines
    if number < 2:
        return ()
    servers, ranks = server.num_instances or 1, server.data_parallel or 1
    names = list(server.instance_names[:_MOST_NAMES])
    names += ["…"] if len(server.instance_names) > _MOST_NAMES else []
    who = f"{servers:,} servers stand behind this address" if servers > 1 else "one server"
    who += f" ({', '.join(names)})" if names else ""
    who += f", each with {ranks:,} engines" if servers > 1 and ranks > 1 else ""
    who = who if servers > 1 else f"{ranks:,} engines stand behind this address (data_parallel)"
    text = (
        f"{who}: the numbers are of all {number:,} engines together. A twin of one engine does not describe them; "
        f"cluster.instances: {number} does"
    )
    return (RunFinding(kind=ENGINES, num=num_requests, of=num_requests, text=text),)
