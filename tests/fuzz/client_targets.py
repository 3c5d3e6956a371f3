"""What a server sends to the load generator: event streams and metrics."""

from __future__ import annotations

from observe.response.sse import SseParser
from observe.server.prometheus_text import parse_metrics
from tests.fuzz.target import Target, damaged

_STREAM = (
    b'data: {"id":"a","choices":[{"index":0,"text":"x","finish_reason":null}],"usage":{"completion_tokens":1,'
    b'"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}}\n\ndata: [DONE]\n\n'
)
_METRICS = b'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0",model_name="tiny"} 3.0 17\n'


def _sse(data: bytes) -> None:
    """An event stream cut in two is the same event stream."""
    whole, parts = SseParser(), SseParser()
    middle = len(data) // 2
    expected = whole.feed(data) + whole.close()
    assert parts.feed(data[:middle]) + parts.feed(data[middle:]) + parts.close() == expected


def _metrics(data: bytes) -> None:
    parse_metrics(data.decode("utf-8", "replace"))


TARGETS = [
    Target("sse", damaged((_STREAM, _STREAM.replace(b"\n", b"\r\n")), (b"data:", b": ping")), _sse),
    Target("metrics", damaged((_METRICS,), (b'{a="', b"\\", b"," * 50)), _metrics),
]
