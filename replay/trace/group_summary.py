"""Latencies and throughput by group: per service class, tenant, model and adapter, and of sessions as wholes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from replay.numbers.distribution import Distribution, distribution
from replay.sessions.session_summary import SessionsSummary, session_rows, summarize_sessions
from traces import finished_ok, four_digits, request_latencies
from traces.facts import AlignedRows, AnswerPart, Fact, TermRows, count, four_digits_ms
from traces.strict.escape import terminal

if TYPE_CHECKING:
    from traces import Trace

GROUP_COLUMNS = ("slo_class", "tenant_id", "model", "adapter")
"""Columns of a trace by which requests are told apart."""

NO_NAME = "none"
"""The name of the requests whose column is empty."""

MOST_SHOWN = 8
"""Groups of a column that the terminal's table shows, the largest first."""


class GroupSummary(TypedDict):
    """The requests of one group. ``output_tokens``: of its finished answers; times in µs, of finished requests."""

    num_requests: int
    num_by_status: dict[str, int]
    output_tokens: int
    output_token_throughput: float | None
    ttft_us: Distribution
    tpot_us: Distribution
    e2e_us: Distribution
    queue_us: Distribution


class Groups(TypedDict):
    """``by_column``: per column that tells at least two groups apart, each group.

    ``tenant_jain_fairness``: Jain's index of the output tokens that tenants got (1: all as many; 1/n: one got all),
    None without two tenants. ``sessions``: None where no request belongs to one.
    """

    by_column: dict[str, dict[str, GroupSummary]]
    tenant_jain_fairness: float | None
    sessions: SessionsSummary | None


def summarize_groups(trace: Trace, *, whole: Trace, span_us: float, block_size: int) -> Groups:
    """Return the groups of a simulated trace's measured part, its sessions those of the ``whole``.

    ``span_us``: what throughputs are per. ``block_size``: the engine's.
    """
    told_apart = {column: dict(rows_by_name(trace, column)) for column in GROUP_COLUMNS}
    told_apart = {column: groups for column, groups in told_apart.items() if len(groups) > 1}
    latencies = request_latencies(trace) if told_apart else {}
    tokens = np.where(finished_ok(trace), trace.cells("output_tokens").values, 0).astype(np.float64)
    status = trace.cells("status").filled(NO_NAME)
    by_column: dict[str, dict[str, GroupSummary]] = {}
    for column, groups in told_apart.items():
        by_column[column] = {
            name: _group(rows, latencies, tokens=tokens, status=status, span_us=span_us)
            for name, rows in groups.items()
        }
    tenants = by_column.get("tenant_id")
    got = None if tenants is None else np.array([each["output_tokens"] for each in tenants.values()])
    return Groups(
        by_column=by_column,
        tenant_jain_fairness=None if got is None else jain_fairness(got),
        sessions=summarize_sessions(whole, block_size=block_size),
    )


def jain_fairness(counts: NDArray[np.int64] | NDArray[np.float64]) -> float | None:
    """Return (sum x)^2 / (n sum x^2), None where all counts are 0.

    1 if all got the same, 1/n if one got all (Jain, Chiu, Hawe, "A quantitative measure of fairness", 1984).
    """
    squares = float((counts.astype(np.float64) ** 2).sum())
    return float(counts.sum()) ** 2 / (len(counts) * squares) if squares else None


def rows_by_name(trace: Trace, column: str) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield each name of a column with its rows (ascending), in the order of names."""
    cells = trace.cells(column)
    if not cells.is_known.any():
        if len(cells):
            yield NO_NAME, np.arange(len(cells))
        return
    distinct, codes = np.unique(cells.filled("").astype(str), return_inverse=True)
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(distinct)))
    for name, rows in zip(distinct, np.split(order, ends[:-1]), strict=True):
        yield str(name) or NO_NAME, rows


def _group(
    rows: NDArray[np.int64],
    latencies: dict[str, NDArray[np.float64]],
    *,
    tokens: NDArray[np.float64],
    status: NDArray[np.object_],
    span_us: float,
) -> GroupSummary:
    names, counts = np.unique(status[rows].astype(str), return_counts=True)
    num_tokens = float(tokens[rows].sum())
    return GroupSummary(
        num_requests=len(rows),
        num_by_status={str(name): int(count) for name, count in zip(names, counts, strict=True)},
        output_tokens=int(num_tokens),
        output_token_throughput=num_tokens / (span_us / 1e6) if span_us > 0 else None,
        ttft_us=distribution(latencies["ttft_us"][rows]),
        tpot_us=distribution(latencies["tpot_us"][rows]),
        e2e_us=distribution(latencies["e2e_us"][rows]),
        queue_us=distribution(latencies["queue_us"][rows]),
    )


# -- for people -----------------------------------------------------------------------------------------------


def group_parts(groups: Groups) -> list[AnswerPart]:
    """Return a table per column, the largest groups first, and the sessions; [] where there is nothing."""
    parts: list[AnswerPart] = []
    for column, members in groups["by_column"].items():
        parts += ["", *_column_parts(column, members, fairness=groups["tenant_jain_fairness"])]
    if (sessions := groups["sessions"]) is not None:
        parts += ["", TermRows(session_rows(sessions))]
    return parts


def _column_parts(
    column: str, members: dict[str, GroupSummary], *, fairness: float | None
) -> list[AnswerPart]:
    largest = sorted(members.items(), key=lambda item: -item[1]["num_requests"])
    ordered = [(terminal(name), each) for name, each in largest]
    width = max(12, *(len(name) + 2 for name, _ in ordered[:MOST_SHOWN]), len(column) + 2)
    shown = [_facts(column, name, each) for name, each in ordered[:MOST_SHOWN]]
    head = [fact.term or "" for fact in shown[0]]
    widths = [-width, *(max(len(each) + 1, 9) for each in head[1:]), 0]  # 80 columns with the unit
    rows = [[*head, " ms"], *([fact.text for fact in each] for each in shown)]
    parts: list[AnswerPart] = [AlignedRows(rows, widths)]
    if len(ordered) > MOST_SHOWN:
        parts.append(f"… and {len(ordered) - MOST_SHOWN:,} more (--json has all)")
    if column == "tenant_id" and fairness is not None:
        parts.append(f"Jain's fairness of output tokens over tenants {fairness:.3f} (1: all got as many)")
    return parts


def _facts(column: str, name: str, group: GroupSummary) -> list[Fact]:
    """Return a group's cells."""
    ttft, tpot, e2e = group["ttft_us"], group["tpot_us"], group["e2e_us"]
    return [
        Fact("", column, name),
        Fact("num_requests", "requests", group["num_requests"], count),
        Fact("num_by_status.ok", "finished", group["num_by_status"].get("ok", 0), count),
        Fact("output_token_throughput", "tokens/s", group["output_token_throughput"], four_digits),
        Fact("ttft_us.mean", "TTFT mean", ttft["mean"], four_digits_ms),
        Fact("ttft_us.p99", "TTFT p99", ttft["p99"], four_digits_ms),
        Fact("tpot_us.mean", "TPOT mean", tpot["mean"], four_digits_ms),
        Fact("e2e_us.mean", "E2E mean", e2e["mean"], four_digits_ms),
    ]
