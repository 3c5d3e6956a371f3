"""Which answers of a trace end by themselves, and what an async engine makes of it."""

from __future__ import annotations

import numpy as np
import pytest

from replay.cluster.simulate import simulate_trace
from replay.trace.request_columns import ends_by_itself, requests_from_trace
from replay.twin.twin_config import TwinConfig
from sim import Blackbox, EngineConfig, Status, simulate
from sim.requests import UNKNOWN_LIMIT
from tests.traces.made import small_trace
from traces import Trace
from traces.tables.cells import cells_where

UNKNOWN = -1


def ending(rows: list[tuple[int, int, str, str]]) -> Trace:
    """Return a trace from (output_tokens, max_tokens or UNKNOWN, finish_reason or "", status), all sent at once."""
    output, most, reason, status = (list(column) for column in zip(*rows, strict=True))
    known = np.array([each != "" for each in reason])
    return small_trace(
        request_id=[str(row) for row in range(len(rows))],
        input_tokens=[16] * len(rows),
        output_tokens=output,
        max_tokens=cells_where(np.array(most), np.array(most) != UNKNOWN),
        finish_reason=cells_where(np.array(reason, dtype=object), known),
        status=status,
        arrival_time_us=[0] * len(rows),
        send_time_us=[0] * len(rows),
        first_chunk_time_us=[10] * len(rows),
        last_chunk_time_us=[20] * len(rows),
    )


TABLE = {
    "it stopped before its limit": ((5, 9, "stop", "ok"), True, 9),
    "it stopped, and nobody knows its limit": ((5, UNKNOWN, "stop", "ok"), True, UNKNOWN_LIMIT),
    "it was cut at its limit": ((9, 9, "length", "ok"), False, 9),
    "the model's length ended it before its limit": ((5, 9, "length", "ok"), False, 5),
    "its last token was the limit's, too": ((9, 9, "stop", "ok"), False, 9),
    "no reason, but shorter than its limit": ((5, 9, "", "ok"), True, 9),
    "no reason, no limit": ((5, UNKNOWN, "", "ok"), False, 5),
    "it called a tool": ((5, 9, "tool_calls", "ok"), True, 9),
    "it failed: nothing is known": ((5, 9, "stop", "error"), False, 9),
}


@pytest.mark.parametrize("name", TABLE)
def test_an_answer_ends_by_itself_if_its_reason_or_its_limit_says_so(name: str) -> None:
    row, ends, most = TABLE[name]
    trace = ending([row, (3, 8, "stop", "ok")])
    assert ends_by_itself(trace).tolist() == [ends, True]
    requests = requests_from_trace(trace, block_size=16)
    assert requests.max_tokens is not None
    assert requests.max_tokens.tolist() == [most, 8]


def test_where_every_answer_is_as_long_as_it_may_be_nothing_is_told_to_the_engine() -> None:
    assert (
        requests_from_trace(
            ending([(9, 9, "length", "ok"), (4, UNKNOWN, "", "ok")]), block_size=16
        ).max_tokens
        is None
    )


def test_the_replay_of_answers_that_stop_takes_a_decode_more_and_says_that_they_stopped() -> None:
    """Beside a longer answer: its sixth step still decodes for the short one, at 10 µs."""
    rows = [(5, 9, "stop", "ok"), (9, 9, "length", "ok")]
    cut = [(5, 5, "length", "ok"), (9, 9, "length", "ok")]
    ends_us = []
    for each in (rows, cut):
        twin = TwinConfig(
            engine=EngineConfig(async_scheduling=True, num_gpu_blocks=100),
            latency=Blackbox(beta0=100, beta2=10),
        )
        simulated, _ = simulate_trace(ending(each), twin)
        ends_us.append(simulated.cells("last_token_time_us").values)
        assert simulated.cells("finish_reason").values.tolist() == [each[0][2], "length"]
    assert (ends_us[0] - ends_us[1]).tolist() == [0, 10]


@pytest.mark.parametrize(
    ("most", "status"), [(300, Status.REJECTED), (256, Status.OK), (UNKNOWN_LIMIT, Status.OK)]
)
def test_the_front_end_refuses_by_what_is_asked_for_not_by_what_would_come(most: int, status: Status) -> None:
    """A server of 256 tokens: who asks for 300 is refused, though its answer would end after five."""
    requests = requests_from_trace(ending([(5, most, "stop", "ok")]), block_size=16)
    engine = EngineConfig(max_model_len=256, num_gpu_blocks=100)
    assert simulate(requests, engine, Blackbox(beta0=100)).outcomes.status.tolist() == [status]
