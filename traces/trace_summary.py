"""A summary of a trace: how many requests, how fast, how long, how cacheable, and their outcomes."""

from __future__ import annotations

from collections import Counter
from lazy_dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from traces.findings.prefix_ceiling import prefix_hit_ceiling_frac
from traces.findings.run_findings import findings_of
from traces.header import Header, RunFinding
from traces.importers.reading_options import ReadingOptions
from traces.importers.recorded import parts_at, read_recorded
from traces.measured.http_phases import phase_quantities, slow_phases
from traces.metrics import (
    Float64s,
    cut_short_note,
    finished_ok,
    mean_rate_per_s,
    metric_notes,
    pooled_itl_us,
    prompt_tokens,
    request_latencies,
    sent_or_due,
)
from traces.schema import FIELDS
from traces.statistics.quantities import Quantity, quantity
from traces.strict.arguments import PATH, takes
from traces.tables.hash_chains import own_hashes
from traces.tables.session_tree import session_tree
from traces.trace import Trace
from traces.warm_up import without_warmup

if TYPE_CHECKING:
    from collections.abc import Mapping

US_PER_S = 1_000_000
SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A trace in numbers; None where a value is not known.

    ``span_us``: from the first arrival to the last. ``rate_per_s``: (n - 1) / span. ``gap_cv``: coefficient
    of variation of the gaps between arrivals (1 for Poisson, 0 for a clock). ``prefix_hit_ceiling_frac``:
    share of all prompt tokens that an earlier arrival had in the same place, which is what an unlimited
    prefix cache finds. ``concurrency``: users of a closed loop. ``imported_from``: the format of the file that a trace
    without outcomes was recorded in (``weka``), where it was not drawn.
    ``findings``: what shows that the numbers are not the server's; their lines are among the notes.
    ``http_phases_us``: those that requests had.
    ``num_inputs``: of each request, where nothing is generated; ``input_throughput``: of these per second.
    ``duration_us``: from the first send to the last event, warm-up left out. Latencies are those of ``traces.metrics``.
    """

    mode: str | None
    imported_from: str | None
    tool: str | None
    num_requests: int
    num_by_status: Mapping[str, int]
    num_warmup: int
    num_events: int
    span_us: int | None
    rate_per_s: float | None
    gap_cv: float | None
    prompt_tokens: Quantity | None
    output_tokens: Quantity | None
    concurrency: int | None
    num_prefix_groups: int
    num_sessions: int
    rounds_per_session: Quantity | None
    num_branches: int
    num_joins: int
    new_prompt_tokens: Quantity | None
    distinct_prompt_tokens: int | None
    prefix_hit_ceiling_frac: float | None
    duration_us: int | None
    request_throughput: float | None
    output_token_throughput: float | None
    prompt_token_throughput: float | None
    num_inputs: int | None
    input_throughput: float | None
    ttft_us: Quantity | None
    e2e_us: Quantity | None
    itl_us: Quantity | None
    tpot_us: Quantity | None
    queue_us: Quantity | None
    dispatch_lag_us: Quantity | None
    http_phases_us: Mapping[str, Quantity]
    foreign_columns: tuple[str, ...]
    findings: tuple[RunFinding, ...]
    notes: tuple[str, ...]

    def slow_phases(self) -> list[tuple[str, Quantity]]:
        """Return the phases of HTTP before the server's answer that took long, with the words for each."""
        return slow_phases(self.http_phases_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedFile:
    """A trace in numbers, or each of the runs in a file of several; ``names``: what reads each of them again."""

    names: tuple[str, ...]
    summaries: tuple[Summary, ...]

    @property
    def is_one(self) -> bool:
        """Whether there is one run, which needs no name."""
        return len(self.summaries) == 1

    def rows(self) -> list[dict[str, object]]:
        """Return a row per run, of what the document has."""
        return [{"name": name, **asdict(each)} for name, each in zip(self.names, self.summaries, strict=True)]

    def document(self) -> dict[str, object]:
        """Return what ``vtwin trace info --json`` prints."""
        if self.is_one:
            return {"schema_version": SCHEMA_VERSION, **asdict(self.summaries[0])}
        told = [{"name": name, **asdict(each)} for name, each in zip(self.names, self.summaries, strict=True)]
        return {"schema_version": SCHEMA_VERSION, "parts": told}


@takes(path=PATH)
def describe_file(path: Path | str, *, options: ReadingOptions | None = None) -> DescribedFile:
    """Return a trace, or a file of another tool, in numbers: each of its runs, unless ``path`` names one (FILE#2).

    Raises TraceError for a file that cannot be read.
    """
    path, options = Path(path), options or ReadingOptions()
    parts = [path] if options.part is not None else parts_at(path, options=options)
    found = tuple(summarize_trace(read_recorded(part, events=True, options=options)) for part in parts)
    return DescribedFile(names=tuple(part.name for part in parts), summaries=found)


def _imported_from(header: Header) -> str | None:
    """Return the format of a recorded workload; None for a drawn one, also from ServeGen's data."""
    if header.mode != "generated" or header.source is None or header.workload_seed is not None:
        return None
    return header.source.format


def summarize_trace(trace: Trace) -> Summary:
    """Return the trace in numbers; rates and latencies without its warm-up (``traces.warm_up``).

    Of a file that does not show its load (``Source.load_unknown``) there are no rates.
    """
    counted = without_warmup(trace)
    metrics = request_latencies(counted)
    shows_load = trace.header.source is None or trace.header.source.load_unknown is None
    duration = _duration_us(counted) if shows_load else None
    ok = int(finished_ok(counted).sum())
    tokens_out = counted.cells("output_tokens").floats()[_has_e2e(counted)].sum()
    findings = findings_of(trace)
    return Summary(
        mode=trace.header.mode,
        imported_from=_imported_from(trace.header),
        tool=trace.header.tool,
        num_requests=len(trace),
        num_by_status=_num_by_status(trace),
        num_warmup=len(trace) - len(counted),
        num_events=0 if trace.events is None else len(trace.events),
        **(_arrivals(counted) if shows_load else _NO_ARRIVALS),
        prompt_tokens=quantity(prompt_tokens(trace).astype(np.float64)),
        output_tokens=quantity(trace.cells("output_tokens").floats()),
        concurrency=None if trace.header.closed_loop is None else trace.header.closed_loop.concurrency,
        num_prefix_groups=trace.cells("prefix_group").num_distinct(),
        num_sessions=trace.cells("session_id").num_distinct(),
        **_session_shape(trace),
        prefix_hit_ceiling_frac=prefix_hit_ceiling_frac(trace),
        duration_us=duration,
        request_throughput=ok * US_PER_S / duration if duration else None,
        **_read_per_s(counted, duration),
        output_token_throughput=float(tokens_out) * US_PER_S / duration
        if duration and not np.isnan(tokens_out)
        else None,
        ttft_us=quantity(metrics["ttft_us"]),
        e2e_us=quantity(metrics["e2e_us"]),
        itl_us=quantity(pooled_itl_us(counted)),
        tpot_us=quantity(metrics["tpot_us"]),
        queue_us=quantity(metrics["queue_us"]),
        dispatch_lag_us=_lag(counted, metrics["dispatch_lag_us"]),
        http_phases_us=phase_quantities(counted),
        foreign_columns=tuple(name for name in trace.table.names if name not in FIELDS),
        findings=findings,
        notes=(
            *(trace.header.source.lines() if trace.header.source is not None else ()),
            *([cut] if (cut := cut_short_note(trace)) else ()),
            *(each.text for each in findings),
            *metric_notes(counted).lines(),
        ),
    )


def _read_per_s(trace: Trace, duration_us: int | None) -> dict[str, Any]:
    """Return how much of answered prompts the server read: tokens per second, and inputs where nothing is generated."""
    ok, num_inputs = (
        finished_ok(trace),
        None if trace.header.client is None else trace.header.client.num_inputs,
    )
    per_s = US_PER_S / duration_us if duration_us else None
    return {
        "prompt_token_throughput": None if per_s is None else float(prompt_tokens(trace)[ok].sum()) * per_s,
        "num_inputs": num_inputs,
        "input_throughput": None
        if per_s is None or num_inputs is None
        else num_inputs * int(ok.sum()) * per_s,
    }


def _session_shape(trace: Trace) -> dict[str, Any]:
    """Return how long sessions are, how often they branch and join, and how much each prompt adds."""
    codes, names = trace.cells("session_id").codes()
    sizes = np.bincount(codes[codes >= 0], minlength=len(names)).astype(np.float64)
    tree = session_tree(trace.table)
    waiting, awaited = tree.edges()
    new, distinct = _prompt_growth(trace)
    return {
        "rounds_per_session": quantity(sizes),
        "num_branches": int((np.bincount(awaited, minlength=1) > 1).sum()),
        "num_joins": int((np.bincount(waiting, minlength=1) > 1).sum()),
        "new_prompt_tokens": new,
        "distinct_prompt_tokens": distinct,
    }


def _prompt_growth(trace: Trace) -> tuple[Quantity | None, int | None]:
    """Return (the tokens that prompts add to the prompts that they continue, the tokens of all different blocks)."""
    block = trace.header.hash_block_size
    if block is None or "num_parent_hashes" not in trace.table:
        added = trace.cells("new_input_tokens")
        return quantity(np.where(trace.cells("round_index").values > 0, added.floats(), np.nan)), None
    own = own_hashes(trace.table)
    goes_on = session_tree(trace.table).parent >= 0
    new = np.where(goes_on, prompt_tokens(trace) - own.kept * block, np.nan)
    return quantity(new.astype(np.float64)), len(np.unique(own.ids)) * block


def _has_e2e(trace: Trace) -> NDArray[np.bool_]:
    return ~np.isnan(request_latencies(trace)["e2e_us"])


def _lag(trace: Trace, lag_us: Float64s) -> Quantity | None:
    """Return how late requests were sent; None of a tool's file that has no due times: they count as due when sent."""
    is_copied = trace.header.source is not None and not np.nan_to_num(lag_us).any()
    return None if is_copied else quantity(lag_us)


_NO_ARRIVALS: Final[dict[str, Any]] = {"span_us": None, "rate_per_s": None, "gap_cv": None}


def _arrivals(trace: Trace) -> dict[str, Any]:
    times = np.sort(trace.cells("arrival_time_us").known())
    if len(times) < 2 or times[-1] == times[0]:
        return _NO_ARRIVALS
    span = int(times[-1] - times[0])
    gaps = np.diff(times)
    return {
        "span_us": span,
        "rate_per_s": mean_rate_per_s(times, trace.header.rate_per_s),
        "gap_cv": float(gaps.std() / gaps.mean()),
    }


def _num_by_status(trace: Trace) -> dict[str, int]:
    return dict(sorted(Counter(trace.cells("status").filled("none").tolist()).items()))


def _duration_us(trace: Trace) -> int | None:
    starts = sent_or_due(trace).known()
    ends = trace.cells("last_token_time_us").or_else(trace.cells("last_chunk_time_us")).known()
    if not len(starts) or not len(ends) or ends.max() <= starts.min():
        return None
    return int(ends.max()) - int(starts.min())
