"""The summary of a simulation: the JSON document of ``replay`` and ``run``."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from typing import TypedDict

import numpy as np

from replay.numbers.distribution import PERCENTILES, Distribution, distribution, distribution_of
from replay.sessions.session_summary import CacheNeeds
from replay.trace.group_summary import Groups, summarize_groups
from replay.trace.kv_offload import KvOffload, summarize_kv_offload
from replay.trace.measured_window import EVERYTHING, MeasuredPart, Window, measured_rows
from replay.trace.operator_times import OperatorTimes
from replay.trace.own_record import gaps_of_requests
from replay.verdict.judged import LoadFacts
from replay.verdict.sentences import Verdict
from replay.verdict.stretches import OverloadedStretch
from sim import EngineConfig, Histogram, Int64s, Simulation, Status
from traces import (
    Goodput,
    Precision,
    Trace,
    finished_ok,
    goodput,
    is_warmup,
    mean_rate_per_s,
    pooled_itl_us,
    precision_of,
    prompt_tokens,
    request_latencies,
    select_rows,
    tool_version,
)

SCHEMA_VERSION = 1


class SpeculationSummary(TypedDict):
    """Speculative decoding: tokens drafted and accepted, and the mean length of a step's output with its own token."""

    num_draft_tokens: int
    num_accepted_tokens: int
    acceptance_frac: float | None
    mean_accepted_length: float | None


class IncompleteCounts(TypedDict):
    """How many of the incomplete requests ran at the horizon, how many waited, how many were yet to be sent.

    ``num_in_gateway``: of a cluster, how many had not got to an instance; they are not among those that waited.
    """

    num_running: int
    num_waiting: int
    num_in_gateway: int
    num_unsent: int


class StepDistribution(TypedDict):
    """The mean and percentiles of all steps that computed anything.

    ``num_seqs``: requests in a step. ``num_tokens``: tokens that it computes, prompts' and outputs'. Its percentiles
    are exact below 512, above up to 0.4 % too small, those of ``duration_us`` within 0.2 %; means are exact.
    ``num_prefill_tokens_mean`` and ``num_decode_tokens_mean``: of ``num_tokens``, those of prompts (computed again
    after a preemption, too) and those of answers.
    """

    num_seqs: Distribution
    num_tokens: Distribution
    num_prefill_tokens_mean: float | None
    num_decode_tokens_mean: float | None
    duration_us: Distribution


class MeasuredSpan(TypedDict):
    """The window of ``--measure`` or ``--warmup-frac``, and how many requests were sent in it."""

    from_us: int
    to_us: int
    num_requests: int


class TtftParts(TypedDict):
    """The mean TTFT by what it is spent on, µs: the four add up to it.

    ``front_end``: before the engine is reached (alpha0 and alpha1; in a cluster also the gateway's queue);
    ``step_under_way``: from then until the step under way has ended, and the engine looks for new requests; ``queue``:
    from then until a step first schedules the request, the mean of ``queue_us``; ``prefill``: until the first token.
    """

    front_end: float
    step_under_way: float
    queue: float
    prefill: float


class SimulationSummary(TypedDict):
    """The document itself. Throughputs are per second of simulated time, None when that is 0.

    ``num_by_reason``: the unanswered requests with a reason in the trace, by reason.
    ``prefix_hit_frac``: prompt tokens found in the cache when a request was first scheduled, of the prompt
    tokens of all requests that were; ``offered_rate_per_s`` and ``verdict``: how fast requests came and whether the
    server kept up, None where answers set the pace; ``verdict_stretches``: where in the run more was sent than
    answered, [] if nowhere; ``load``: the figures behind the verdict; ``sending_us``: when the last request was sent;
    ``engine_cpu_s`` is the only value that differs from run to run.
    ``e2e_us_per_token``: E2E over output tokens; ``prompt_output_ratio``: prompt over output tokens, per request.
    ``kv_offload``: None without a second tier. ``operator_times``: None unless requested.
    ``num_length_capped``: requests whose answer max_model_len cut. ``measured``: None where all but the warm-up is.
    ``kv_needed``: the KV cache that sessions' prompts need, None of a trace that does not say what they share.
    ``p99_precision``: how well the run knows the 99th percentiles of TTFT, TPOT, ITL (with every token's time) and E2E.
    ``ttft_parts_us``: what the mean TTFT is spent on, None without any.
    ``groups``: the requests that are measured, by service class, tenant, model and adapter.
    Within a window, throughputs count what was finished in it, and latencies and goodput the requests sent in it.
    """

    schema_version: int
    tool_version: str
    num_requests: int
    num_by_status: dict[str, int]
    num_by_reason: dict[str, int]
    num_warmup: int
    num_length_capped: int
    incomplete: IncompleteCounts | None
    duration_us: int
    measured: MeasuredSpan | None
    offered_rate_per_s: float | None
    sending_us: int | None
    verdict: Verdict | None
    verdict_stretches: list[OverloadedStretch] | None
    load: LoadFacts | None
    request_throughput: float | None
    output_token_throughput: float | None
    prefix_hit_frac: float | None
    num_preemptions: int
    num_kv_allocation_failures: int
    engine_cpu_s: float
    num_steps: int
    num_jumps: int
    steps: StepDistribution
    prompt_tokens: Distribution
    output_tokens: Distribution
    ttft_us: Distribution
    ttft_parts_us: TtftParts | None
    e2e_us: Distribution
    itl_us: Distribution
    tpot_us: Distribution
    e2e_us_per_token: Distribution
    prompt_output_ratio: Distribution
    queue_us: Distribution
    p99_precision: Precision
    preempted_us: Distribution
    speculative: SpeculationSummary | None
    kv_offload: KvOffload | None
    goodput: Goodput | None
    operator_times: OperatorTimes | None
    groups: Groups
    kv_needed: CacheNeeds | None


def summarize(
    simulation: Simulation,
    trace: Trace,
    *,
    engine: EngineConfig | None = None,
    slo_us: Mapping[str, float] | None = None,
    measured: MeasuredPart = EVERYTHING,
    tier: EngineConfig | None = None,
    kv_block_bytes: int | None = None,
) -> SimulationSummary:
    """Return the summary of a simulation and the trace it gave; warm-up is counted, but in no latency.

    ``engine``: what was simulated (its speculative tokens).
    ``slo_us``: limits in place of the trace's own. ``tier``: the engine that has a second KV tier.
    ``kv_block_bytes``: of a KV block on all GPUs, where it is known.
    """
    window = measured.window(duration_us=simulation.duration_us)
    counted = measured_rows(trace, measured, duration_us=simulation.duration_us)
    chosen = trace if counted.all() else select_rows(trace, counted)
    metrics = request_latencies(chosen)
    span_us = simulation.duration_us if window is None else window.to_us - window.from_us
    num_finished, num_tokens = _finished(simulation, trace, window)
    ok = finished_ok(chosen)
    prompts = np.where(ok, prompt_tokens(chosen), np.nan)
    outputs = np.where(ok, chosen.cells("output_tokens").floats(), np.nan)
    return SimulationSummary(
        schema_version=SCHEMA_VERSION,
        tool_version=tool_version(),
        num_requests=len(trace),
        num_by_status=_counts(trace, "status"),
        num_by_reason=_counts(trace, "error_message"),
        num_warmup=int(is_warmup(trace).sum()),
        num_length_capped=int(trace.cells("length_capped").values.sum()),
        incomplete=_undone(simulation),
        duration_us=simulation.duration_us,
        measured=_span(window, num_requests=len(chosen)),
        offered_rate_per_s=None,
        sending_us=_sending_us(trace),
        verdict=None,
        verdict_stretches=None,
        load=None,
        request_throughput=_ratio(num_finished, span_us / 1e6),
        output_token_throughput=_ratio(num_tokens, span_us / 1e6),
        prefix_hit_frac=_prefix_hit_frac(simulation, trace),
        num_preemptions=simulation.num_preemptions,
        num_kv_allocation_failures=simulation.num_kv_allocation_failures,
        engine_cpu_s=simulation.engine_cpu_s,
        num_steps=simulation.num_steps,
        num_jumps=simulation.num_jumps,
        steps=_step_distribution(simulation),
        prompt_tokens=distribution(prompts),
        output_tokens=distribution(outputs),
        ttft_us=distribution(metrics["ttft_us"]),
        ttft_parts_us=_ttft_parts(simulation, np.flatnonzero(counted)[np.isfinite(metrics["ttft_us"])]),
        e2e_us=distribution(metrics["e2e_us"]),
        itl_us=_itl(simulation, chosen, np.flatnonzero(counted & finished_ok(trace))),
        tpot_us=distribution(metrics["tpot_us"]),
        e2e_us_per_token=distribution(metrics["e2e_us"] / outputs),
        prompt_output_ratio=distribution(prompts / outputs),
        queue_us=distribution(metrics["queue_us"]),
        p99_precision=precision_of(chosen, metrics),
        preempted_us=_preempted(chosen),
        speculative=_speculation(simulation, engine),
        kv_offload=summarize_kv_offload(
            simulation,
            simulation.outcomes,
            np.arange(len(trace)),
            prompt_tokens=prompt_tokens(trace),
            engine=tier,
            block_bytes=kv_block_bytes,
        ),
        goodput=goodput(chosen, slo_us, duration_us=span_us),
        operator_times=None,
        groups=summarize_groups(
            chosen, whole=trace, span_us=span_us, block_size=engine.block_size if engine else 1
        ),
        kv_needed=None,
    )


def _ttft_parts(simulation: Simulation, rows: Int64s) -> TtftParts | None:
    """Return the parts of the mean TTFT; ``rows``: of the requests that have one and are measured."""
    if len(rows) == 0:
        return None
    out = simulation.outcomes
    taken_in_us = np.clip(out.taken_in_us, out.queued_us, out.scheduled_us)
    times = (out.arrival_us, out.queued_us, taken_in_us, out.scheduled_us, out.first_token_us)
    front_end, step_under_way, queue, prefill = (
        float((later - earlier)[rows].mean()) for earlier, later in itertools.pairwise(times)
    )
    return TtftParts(front_end=front_end, step_under_way=step_under_way, queue=queue, prefill=prefill)


def _step_distribution(simulation: Simulation) -> StepDistribution:
    sizes = simulation.batch_sizes()
    num = float(sizes.counts.sum())
    prefill, decode = simulation.num_prefill_tokens, simulation.num_decode_tokens
    return StepDistribution(
        num_seqs=_of_histogram(sizes),
        num_tokens=_of_histogram(simulation.step_tokens(), mean=_ratio(prefill + decode, num)),
        num_prefill_tokens_mean=_ratio(prefill, num),
        num_decode_tokens_mean=_ratio(decode, num),
        duration_us=_of_histogram(simulation.step_times(), mean=_ratio(simulation.busy_us, num)),
    )


def _counts(trace: Trace, column: str) -> dict[str, int]:
    """Return how often each value of a column occurs, by value."""
    return dict(sorted(Counter(trace.cells(column).known().tolist()).items()))


def _span(window: Window | None, *, num_requests: int) -> MeasuredSpan | None:
    if window is None:
        return None
    return MeasuredSpan(from_us=window.from_us, to_us=window.to_us, num_requests=num_requests)


def _finished(simulation: Simulation, trace: Trace, window: Window | None) -> tuple[int, int]:
    """Return how many requests were finished, and the tokens of the answers: all, or those finished in the window."""
    tokens = simulation.outcomes.num_output_tokens
    ok = finished_ok(trace)
    if window is None:
        return int(ok.sum()), int(tokens.sum())
    ended = window.holds(trace.cells("last_token_time_us").floats())
    return int((ok & ended).sum()), int(tokens[ok & ended].sum())


def _undone(simulation: Simulation) -> IncompleteCounts | None:
    """Return which requests a horizon cut off, None if it cut none."""
    num_incomplete = int((simulation.outcomes.status == Status.UNFINISHED).sum())
    if num_incomplete == 0:
        return None
    running, waiting, queued = simulation.num_running, simulation.num_waiting, simulation.num_in_gateway
    return IncompleteCounts(
        num_running=running,
        num_waiting=waiting,
        num_in_gateway=queued,
        num_unsent=num_incomplete - running - waiting - queued,
    )


def _preempted(trace: Trace) -> Distribution:
    """Return how long preempted requests waited to be scheduled again."""
    was = trace.cells("num_preemptions").values > 0
    return distribution(trace.cells("preempted_us").floats()[was])


def _of_histogram(counted: Histogram, *, mean: float | None = None) -> Distribution:
    percentiles = [_known(each) for each in counted.percentiles(PERCENTILES)]
    n = int(counted.counts.sum())
    ends = (float(counted.values[0]), float(counted.values[-1])) if n else (None, None)
    return distribution_of(_known(counted.mean()) if mean is None else mean, percentiles, n=n, ends=ends)


def _speculation(simulation: Simulation, engine: EngineConfig | None) -> SpeculationSummary | None:
    """Return the figures of drafts; the mean length is 1 + accepted / drafts, as vLLM logs it."""
    drafted, accepted = simulation.num_draft_tokens, simulation.num_accepted_tokens
    if engine is None or engine.num_speculative_tokens == 0:
        return None
    drafts = drafted / engine.num_speculative_tokens
    return SpeculationSummary(
        num_draft_tokens=drafted,
        num_accepted_tokens=accepted,
        acceptance_frac=_ratio(accepted, drafted),
        mean_accepted_length=1 + accepted / drafts if drafts else None,
    )


def _sending_us(trace: Trace) -> int | None:
    sent = trace.cells("send_time_us").known()
    return int(sent.max()) if len(sent) else None


def offered_rate_per_s(trace: Trace) -> float | None:
    """Return the mean rate at which requests were sent, per second; None if all were sent at once."""
    sent = trace.cells("send_time_us").known().astype(np.float64)
    return mean_rate_per_s(sent, trace.header.rate_per_s)


def _itl(simulation: Simulation, trace: Trace, rows: Int64s) -> Distribution:
    """Return the gaps of a trace's requests; ``rows``: those that finished, in the simulation."""
    if trace.events is not None:
        return distribution(pooled_itl_us(trace))
    is_whole = len(trace) == len(simulation.outcomes.status)
    gaps = simulation.inter_token_latencies() if is_whole else gaps_of_requests(simulation.written, rows)
    n = int(gaps.counts.sum())
    ends = (float(gaps.gaps_us[0]), float(gaps.gaps_us[-1])) if n else (None, None)
    percentiles = [_known(each) for each in gaps.pooled_percentiles_us(PERCENTILES)]
    return distribution_of(_known(gaps.pooled_mean_us()), percentiles, n=n, ends=ends)


def _prefix_hit_frac(simulation: Simulation, trace: Trace) -> float | None:
    outcomes = simulation.outcomes
    scheduled = outcomes.scheduled_us >= 0
    return _ratio(
        int(outcomes.num_cached_tokens[scheduled].sum()), float(prompt_tokens(trace)[scheduled].sum())
    )


def _ratio(count: float, of: float) -> float | None:
    return count / of if of > 0 else None


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
