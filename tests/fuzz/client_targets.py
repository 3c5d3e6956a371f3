"""What a server sends to the load generator: HTTP, event streams, answers about itself, metrics, its log.

Behind each is the whole way to what is kept: a trace that observe wrote can be read, whatever was in one answer, and
the rows of other requests are what they would have been.
"""

from __future__ import annotations

import asyncio
import tempfile
from functools import cache
from pathlib import Path

import orjson

from observe.beside.power import power_of
from observe.beside.scrape import GaugeRow, scraper_of, write_rows
from observe.measured.beside_the_load import read_beside
from observe.plan.send_plan import SendPlan
from observe.record.live_trace import LiveTrace
from observe.record.recorder import read_exchange
from observe.response.sse import SseParser
from observe.run.sent_request import SentRequest
from observe.senders.exchange import Exchange
from observe.senders.request_kinds import AsCompletion
from observe.server.http_client import WholeAnswer
from observe.server.prometheus_text import parse_metrics
from observe.server.server_facts import facts_of
from observe.server.server_metrics import counter_deltas, learn_from_metrics, spec_decode
from tests.fuzz.target import Target, damaged
from tests.observe.raw_server import GOOD, HEAD, SENDERS, Answer, chunk, event, sent_to
from tests.observe.workloads import plan_of
from traces import Header, ServerInfo, Trace, VtwinError, read_trace
from traces.header import header_yaml, parse_header
from traces.steps import parse_engine_log

_STREAM = (
    b'data: {"id":"a","choices":[{"index":0,"text":"x","token_ids":[5],"finish_reason":null}],"usage":'
    b'{"completion_tokens":1,"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}}\n\n'
    b'data: {"system_fingerprint":"vllm-0.32","choices":[{"delta":{"content":"y"},"finish_reason":"length"}],"usage":'
    b'{"completion_tokens":2,"metrics":{"queue_time_ms":1.5,"time_to_first_token_ms":2,"generation_time_ms":3}}}\n\n'
    b'data: {"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.text","text":"z"}],"thoughts":"q"},'
    b'"finish_reason":"abort"}],"usage":{"completion_tokens":9,"completion_tokens_details":{"reasoning_tokens":4}}}\n\n'
    b'data: {"error":{"message":"boom"}}\n\ndata: [DONE]\n\n'
)
_WHOLE = (
    b'{"choices":[{"text":"xy","finish_reason":"length"}],"usage":{"completion_tokens":2,"prompt_tokens":9}}'
)
_METRICS = (
    b'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0",model_name="tiny"} 3.0 17\n'
    b'vllm:prompt_tokens_total{engine="0"} 5e3\n'
    b'vllm:healthy_pods_total{server="http://10.0.0.1:8000"} 1\n'
    b'vllm:healthy_pods_total{server="http://10.0.0.2:8000"} 0\n'
    b'vllm:spec_decode_num_drafts_total{engine="0"} 5\nvllm:spec_decode_num_accepted_tokens_total{engine="0"} 9\n'
    b'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 4\n'
    b'vllm:cache_config_info{block_size="16",cache_dtype="auto",gpu_memory_utilization="0.9",num_gpu_blocks="5"} 1.0\n'
)
_GPUS = (
    b'# TYPE DCGM_FI_DEV_POWER_USAGE gauge\nDCGM_FI_DEV_POWER_USAGE{gpu="0",Hostname="a\\"b"} 310.5\n'
    b'DCGM_FI_DEV_POWER_USAGE{gpu="1"} 3e2 1700000000000\nDCGM_FI_DEV_GPU_UTIL{gpu="0"} 99\n'
    b'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0"} 5e9\nnode_cpu_seconds_total{cpu="0"} 5\n'
)
_LOG = (
    b"INFO 1700000000.123 Engine 0: Iteration(7): 1 context requests, 20 context tokens, 3 generation requests, "
    b"3 generation tokens, iteration elapsed time: 1.25 ms, KV cache usage: 3.5%\n"
)
_ABOUT = b'{"data":[{"id":"tiny","owned_by":"vllm","max_model_len":4096,"parent":null}],"version":"0.32.0"}'
NUMBERS = (
    b"-1",
    b"1e308",
    b"1e999",
    b"10000000000000000000",
    b"9223372036854775808",
    b'"abc"',
    b"true",
    b"null",
)


def _sse(data: bytes) -> None:
    """An event stream cut in two is the same event stream."""
    whole, parts = SseParser(), SseParser()
    middle = len(data) // 2
    expected = whole.feed(data) + whole.close()
    assert parts.feed(data[:middle]) + parts.feed(data[middle:]) + parts.close() == expected


def _http(sender: str, data: bytes) -> None:
    """Whatever comes as an answer, the request ends, and so do the ones before and after it."""
    answers = [Answer(first=GOOD, end="keep"), Answer(first=data, pieces=1 + len(data) % 3)]
    before, _, after = asyncio.run(
        sent_to(lambda number: answers[number % 2], SENDERS[sender], number=3, within_s=4)
    )
    assert before.failure is after.failure is None
    assert b"".join(before.blobs) == b"".join(after.blobs)


@cache
def _plan() -> SendPlan:
    return plan_of([0, 1000, 2000])


def _answered(row: int, body: bytes) -> SentRequest:
    exchange = Exchange(x_request_id=f"x-{row}", dispatched_ns=10 + row, first_byte_ns=20, http_status=200)
    for start in range(0, len(body), 100):
        exchange.take(body[start : start + 100], 1_000_000 * (row + 1) + start)
    return SentRequest(row=row, exchange=exchange, due_ns=row * 1_000_000)


def observed_answers(
    body: bytes, *, good: bytes, streaming: bool, as_completion: AsCompletion | None = None
) -> Trace:
    """Put three answers on record, the second of them ``body``; return the trace as it can be read afterwards."""

    async def record(live: LiveTrace) -> None:
        for row, said in enumerate((good, body, good)):
            request = _answered(row, said)
            reading = await read_exchange(
                request.exchange, streaming=streaming, with_reply=True, asked=5, as_completion=as_completion
            )
            live.append(live.lines_of(request, reading, start_ns=0))

    with tempfile.TemporaryDirectory() as folder:
        live = LiveTrace(Path(folder) / "t", plan=_plan(), events=True)
        live.write_header(Header(mode="real", tool="vtwin"))
        asyncio.run(record(live))
        live.finish(Header(mode="real", tool="vtwin"))
        return read_trace(Path(folder) / "t")


def without_second(trace: Trace) -> str:
    """Return all that is on record of the first answer and the last, as text."""
    rows = trace.requests[trace.requests["request_id"] != "1"].dropna(axis="columns", how="all")
    assert trace.events is not None
    events = trace.events[trace.events["request_id"] != "1"].reset_index(drop=True)
    return f"{rows.T.sort_index().to_csv()}{events.to_csv()}"


@cache
def _others(streaming: bool) -> str:
    return without_second(observed_answers(b"", good=_good(streaming), streaming=streaming))


def _good(streaming: bool) -> bytes:
    return event() + event(finish='"length"', usage='{"completion_tokens": 2}') if streaming else _WHOLE


def _recorded(data: bytes, *, streaming: bool) -> None:
    trace = observed_answers(data, good=_good(streaming), streaming=streaming)
    assert len(trace) == 3
    assert without_second(trace) == _others(streaming)


def _metrics(data: bytes) -> None:
    samples = parse_metrics(data.decode("utf-8", "replace"))
    deltas = counter_deltas(parse_metrics(_METRICS.decode()), samples)
    header = Header(
        server=learn_from_metrics(ServerInfo(), samples),
        metrics_delta=deltas,
        spec_decode=spec_decode(deltas),
    )
    assert parse_header(header_yaml(header), "t.yaml") == header


async def _kept(data: bytes) -> list[GaugeRow]:
    scraper = scraper_of("http://127.0.0.1:9400/metrics", globs=("DCGM_*",), period_s=1.0, is_alone=False)
    for time_us in (10, 1_000_010):
        scraper._keep(WholeAnswer(status=200, body=data), time_us)
    await scraper.close()
    return scraper.rows


def _scraped(data: bytes) -> None:
    """What is kept of an endpoint beside the server can be written and read again."""
    rows = asyncio.run(_kept(data))
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder) / "t", rows)
        found = read_beside(Path(folder) / "t")
    assert [(time_us, key) for time_us, key, _ in found.gauges] == [row[:2] for row in rows]
    power_of(rows, duration_us=2e6, period_s=1.0, output_tokens=10)


def _about(data: bytes) -> None:
    answer = WholeAnswer(status=200, body=data)
    try:
        facts = facts_of(answer, version=answer, scrape=None, model=None)
    except VtwinError as refusal:
        assert str(refusal).isprintable()
        return
    header = Header(server=facts.info)
    assert parse_header(header_yaml(header), "t.yaml") == header
    orjson.dumps(facts.model)


def _log(data: bytes) -> None:
    parse_engine_log(data.decode("utf-8", "replace").splitlines())


_RAW = (
    GOOD,
    HEAD + chunk(_STREAM) + b"0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ndata: a\n\n",
)
_FRAMES = (
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"0\r\n\r\n",
    b"Content-Length: 3\r\n",
    b"101",
    b"000",
    b"\r\n",
    b"zz\r\n",
)

TARGETS = [
    Target("sse", damaged((_STREAM, _STREAM.replace(b"\n", b"\r\n")), (b"data:", b": ping")), _sse),
    Target("http-sockets", damaged(_RAW, _FRAMES), lambda data: _http("sockets", data)),
    Target("http-aiohttp", damaged(_RAW, _FRAMES), lambda data: _http("aiohttp", data)),
    Target("stream-to-trace", damaged((_STREAM,), NUMBERS), lambda data: _recorded(data, streaming=True), 8),
    Target("answer-to-trace", damaged((_WHOLE,), NUMBERS), lambda data: _recorded(data, streaming=False), 8),
    Target("metrics", damaged((_METRICS,), (b'{a="', b"\\", b"," * 50, b"1e308", b"-5", b"+Inf")), _metrics),
    Target(
        "scraped",
        damaged((_GPUS,), (b'{gpu="', b"\\", b"NaN", b"+Inf", b"DCGM_FI_DEV_POWER_USAGE 5")),
        _scraped,
    ),
    Target("about-the-server", damaged((_ABOUT,), NUMBERS), _about),
    Target("engine-log", damaged((_LOG,), (b"1.2.3", b"9" * 5000)), _log),
]
