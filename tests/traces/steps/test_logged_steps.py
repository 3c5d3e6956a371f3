"""A server's own steps, in each form in which servers write them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traces import TraceError
from traces.steps import parse_engine_log, read_logged_steps
from traces.strict.limits import MOST_US

LINE = (
    "INFO {time} [loggers.py:199] Engine 00{engine}: Iteration({step}): 1 context requests, 344 context tokens, "
    "2 generation requests, 2 generation tokens, iteration elapsed time: 6.25 ms, GPU KV cache usage: 0.3%\n"
)
AVERAGE = "INFO 11-21 01:03:51 Engine 000: Avg prompt throughput: 34.4 tokens/s, Running: 2 reqs\n"


def forward_pass(number: int = 7, *, wall_time: object = 0.025, **fields: object) -> dict[str, Any]:
    """Return a record as Dynamo's workers write it."""
    scheduled = {
        "num_prefill_requests": 2,
        "sum_prefill_tokens": 256,
        "var_prefill_length": 16.0,
        "sum_prefill_kv_tokens": 64,
        "num_decode_requests": 3,
        "sum_decode_kv_tokens": 1024,
    }
    metrics = {"version": 1, "worker_id": "w", "dp_rank": 0, "counter_id": number, "wall_time": wall_time}
    return {**metrics, "scheduled_requests": scheduled, **fields}


def enveloped(metrics: dict[str, Any], *, mode: str = "full") -> dict[str, Any]:
    """Return a record in the envelope of a trace of forward passes."""
    event = {"schema": "dynamo.fpm.trace.v1", "capture_mode": mode, "observed_at_unix_ms": 1_782_777_601_250}
    return {"timestamp": 1250, "event": {**event, "fpm": metrics}}


def written(tmp_path: Path, *records: dict[str, Any]) -> Path:
    """Return a file of records, one a line."""
    path = tmp_path / "fpm.jsonl"
    path.write_text("\n".join(map(json.dumps, records)) + "\n")
    return path


def test_vllms_log_is_read_with_what_it_says_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(
        AVERAGE
        + LINE.format(time="1795220853.214111", engine=1, step=4)
        + LINE.format(time="1795220853.224111", engine=1, step=5)
    )
    found = read_logged_steps(path)
    assert (list(found.engine), list(found.number)) == ([1, 1], [4, 5])
    assert (found.prefill_requests[0], found.prefill_tokens[0]) == (1, 344)
    assert (found.decode_requests[0], found.duration_us[0], found.end_us[0]) == (
        2,
        6250,
        1_795_220_853_214_111,
    )
    assert found.has_ends
    assert not found.is_whole
    assert found.decode_context is None


def test_a_log_with_whole_seconds_alone_has_no_ends(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(LINE.format(time="11-21 01:03:51", engine=0, step=4))
    assert not read_logged_steps(path).has_ends


@pytest.mark.parametrize("packed", [False, True])
def test_forward_passes_are_read_bare_and_enveloped_plain_and_packed(tmp_path: Path, packed: bool) -> None:
    path = written(tmp_path, enveloped(forward_pass(8)), enveloped(forward_pass(7, wall_time=0.5)))
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    found = read_logged_steps(path)
    bare = read_logged_steps(written(tmp_path, forward_pass(8), forward_pass(7, wall_time=0.5)))
    for steps in (found, bare):
        assert list(steps.number) == [7, 8]
        assert list(steps.duration_us) == [500_000, 25_000]
        assert steps.is_whole
        assert steps.decode_context is not None
        assert steps.prefill_cached is not None
        assert steps.prompt_variance is not None
        columns = (steps.prefill_requests, steps.prefill_tokens, steps.decode_requests, steps.decode_tokens)
        assert [each[0] for each in columns] == [2, 256, 3, 3]
        assert (steps.decode_context[0], steps.prefill_cached[0], steps.prompt_variance[0]) == (1024, 64, 16)
    assert found.has_ends
    assert not bare.has_ends


def test_what_a_forward_pass_does_not_say_is_0(tmp_path: Path) -> None:
    bare = {"wall_time": 0.5, "scheduled_requests": {"num_decode_requests": 1}}
    found = read_logged_steps(written(tmp_path, bare, {**bare, "dp_rank": 0, "counter_id": 1}))
    assert list(found.engine) == [0, 0]
    assert list(found.number) == [0, 1]
    assert (found.prefill_tokens[0], found.prefill_requests[0]) == (0, 0)
    assert found.prompt_variance is not None
    assert found.prompt_variance[0] == 0


def test_times_end_where_a_double_has_every_microsecond(tmp_path: Path) -> None:
    most_ms = MOST_US / 1e3
    event = enveloped(forward_pass())
    event["event"]["observed_at_unix_ms"] = most_ms
    assert read_logged_steps(written(tmp_path, event)).end_us[0] == MOST_US
    event["event"]["observed_at_unix_ms"] = most_ms * 1.0001
    with pytest.raises(TraceError, match="which is no number from 0"):
        read_logged_steps(written(tmp_path, event))
    path = tmp_path / "a.steps.csv"
    path.write_text(f"num_prefill_tokens,num_decode_tokens,duration_us\n0,1,{MOST_US}\n")
    assert read_logged_steps(path).duration_us[0] == MOST_US


def test_the_cache_s_usage_is_a_share_where_a_line_has_it() -> None:
    line = LINE.format(time="11-21 01:03:51", engine=0, step=4)
    with_usage, without = parse_engine_log([line, line.partition(", GPU KV")[0]])
    assert (with_usage.kv_cache_usage_frac, without.kv_cache_usage_frac) == (0.003, None)


def test_each_worker_and_rank_is_an_engine(tmp_path: Path) -> None:
    records = [forward_pass(1), forward_pass(1, dp_rank=1), forward_pass(1, worker_id="other")]
    assert list(read_logged_steps(written(tmp_path, *records)).engine) == [0, 1, 2]


def test_a_table_beside_a_trace_needs_its_columns_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.steps.csv"
    path.write_text("num_prefill_tokens,num_decode_tokens,duration_us\n300,0,9000\n0,1,5000\n")
    found = read_logged_steps(path)
    assert list(found.prefill_requests) == [1, 0]
    assert list(found.number) == [0, 1]
    assert np.isnan(found.end_us).all()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            AVERAGE * 3,
            r"vllm\.log: got only averages over seconds \(Avg prompt throughput\), expected a line for each",
        ),
        ("hello\n", r"vllm\.log: got no engine steps, expected a line for each step"),
        (
            '{"a": 1}\n',
            r"vllm\.log:1: got no wall_time or no num_decode_requests, expected forward-pass metrics",
        ),
        ("{\n", r"vllm\.log:1: got .*, expected forward-pass metrics"),
        (json.dumps(forward_pass(version=2)), r"vllm\.log:1: got version 2, expected"),
        (json.dumps(forward_pass(wall_time=-1)), r"vllm\.log:1: got -1, which is no number from 0"),
        (json.dumps(forward_pass(wall_time="x")), r"vllm\.log:1: got 'x', which is no number from 0"),
        (
            json.dumps(enveloped(forward_pass(), mode="sampled")),
            r"vllm\.log:1: got a sample .*DYN_FPM_MODE=full",
        ),
    ],
)
def test_what_holds_no_steps_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(text)
    with pytest.raises(TraceError, match=said):
        read_logged_steps(path)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="expected a file of a server's steps"):
        read_logged_steps(tmp_path / "none.log")
