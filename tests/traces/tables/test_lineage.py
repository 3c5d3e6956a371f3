"""How requests stand in their sessions: by rounds, by names where there are any, and each alone without a session."""

from __future__ import annotations

import numpy as np

from traces import Header, make_trace
from traces.trace import Trace


def trace_of(**columns: object) -> Trace:
    number = len(next(iter(columns.values())))  # type: ignore[arg-type]  # lists all
    needed = {"request_id": [str(i) for i in range(number)], "input_tokens": 1, "output_tokens": 1}
    return make_trace(Header(mode="workload"), {**needed, "arrival_time_us": 0, **columns})


def test_rounds_come_in_their_order_wherever_they_stand() -> None:
    lineage = trace_of(session_id=["b", None, "a", "b", "a"], round_index=[1, None, 0, 0, 1]).lineage
    assert lineage.session.tolist() == [0, 1, 2, 0, 2]
    assert lineage.order.tolist() == [3, 0, 1, 2, 4]
    assert lineage.rank.tolist() == [1, 0, 0, 0, 1]
    assert lineage.parent.tolist() == [3, -1, -1, -1, 2]
    assert lineage.first.tolist() == [3, 1, 2, 3, 2]


def test_named_parents_come_before_rounds() -> None:
    trace = trace_of(session_id=["a"] * 4, round_index=[0, 1, 2, 3], parent_request_id=[None, "0", "0", None])
    assert trace.lineage.parent.tolist() == [-1, 0, 0, -1]
    assert trace.lineage.rank.tolist() == [0, 1, 2, 3]


def test_a_changed_trace_has_its_own_lineage() -> None:
    trace = trace_of(session_id=["a", "a"], round_index=[0, 1])
    assert trace.lineage is trace.lineage
    assert trace.lineage.parent.tolist() == [-1, 0]
    assert trace.with_columns(round_index=np.array([1, 0])).lineage.parent.tolist() == [1, -1]
    assert len(trace_of(session_id=[]).lineage.order) == 0
