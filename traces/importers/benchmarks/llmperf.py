"""llmperf's answers (``…_individual_responses.json``): latencies of each request, without times.

Source of the format: github.com/ray-project/llmperf, token_benchmark_ray.py and
ray_clients/openai_chat_completions_client.py, and the results in benchmarks/results: a list of objects with
``ttft_s``, ``end_to_end_latency_s``, ``number_input_tokens``, ``number_output_tokens``, ``error_code`` and
``error_msg``. Lengths are counts of Llama's tokenizer, whatever the model. ``inter_token_latency_s`` is the whole
answer's time, TTFT included, over its tokens, and is not read. The summary beside it has model and concurrency.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from traces.errors import TraceError
from traces.header import ClientInfo, Header, ServerInfo, Source, loop_of
from traces.importers.benchmarks.result_rows import (
    Measured,
    columns_of,
    load_json,
    message,
    seconds,
    tokens,
)
from traces.importers.noted import left_out, name_of, of
from traces.trace import Trace, make_trace

_HINT: Final = "expected llmperf's *_individual_responses.json"
_RESPONSES: Final = "_individual_responses.json"
_SUMMARY: Final = "_summary.json"


def read_llmperf(path: Path) -> Trace:
    """Return the latencies in this file as a trace; all requests stand at 0, as the header says.

    The summary of the same run beside the file names model and concurrency. Raises TraceError that names the request.
    """
    found = load_json(path, hint=_HINT)
    if not isinstance(found, list) or not found:
        raise TraceError(f"{path.name}: got no list of requests, {_HINT}")
    rows = [
        row for place, said in enumerate(found) if (row := _row(said, where=f"{path.name}: request {place}"))
    ]
    if not rows:
        raise TraceError(f"{path.name}: got no request of known length, {_HINT}")
    summary, file = _summary(path)
    source = Source(
        format="llmperf",
        file=path.name,
        load_unknown="the file has no start times of requests",
        left_out=left_out(unknown=len(found) - len(rows)),
        notes=("lengths are llmperf's counts, by Llama's tokenizer, not the server's",),
    )
    model = name_of(of(summary, "model"))
    header = Header(
        mode="real",
        tool="llmperf",
        server=ServerInfo() if model is None else ServerInfo().learn(file, model=model),
        closed_loop=loop_of(of(summary, "num_concurrent_requests")),
        client=ClientInfo(library="requests", finished=True),
        source=source,
    )
    return make_trace(header, columns_of(rows))


def _summary(path: Path) -> tuple[object, str]:
    """Return the summary of the same run, None where there is none that can be read; and its name."""
    file = path.with_name(path.name.replace(_RESPONSES, _SUMMARY))
    if file == path or not file.is_file():
        return None, file.name
    return load_json(file, hint="expected llmperf's summary"), file.name


def _row(said: Any, *, where: str) -> Measured | None:  # noqa: ANN401  JSON
    """Return a request's row; None for one that failed and whose length is not known."""
    if not isinstance(said, dict):
        raise TraceError(f"{where}: got {type(said).__name__}, {_HINT}")
    prompt = tokens(said.get("number_input_tokens"), what=f"{where}: number_input_tokens") or None
    output = tokens(said.get("number_output_tokens"), what=f"{where}: number_output_tokens") or None
    first, last = (
        seconds(said.get(key), what=f"{where}: {key}") for key in ("ttft_s", "end_to_end_latency_s")
    )
    code, words = said.get("error_code"), said.get("error_msg")
    has_failed = code is not None or bool(words)
    no_answer = output is None or not last or not first
    if prompt is None:
        return None
    if not has_failed and not no_answer and first is not None and last is not None and first > last:
        raise TraceError(f"{where}: ttft_s: got more than end_to_end_latency_s, {_HINT}")
    return Measured(
        send_us=0,
        prompt=prompt,
        output=None if has_failed or no_answer else output,
        first_us=None if first is None else round(first * 1e6),
        last_us=None if last is None else round(last * 1e6),
        error=message(code, words) if has_failed else ("an answer without tokens" if no_answer else None),
    )
