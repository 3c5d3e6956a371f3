"""Embeddings, classes and scores: one object for each input, whose answer is no text and comes in one piece.

Source: vLLM 0.32 ``vllm/entrypoints/pooling``: ``input`` and ``data`` of embeddings, pooling and classify; ``query``,
``documents`` and ``results`` of rerank; ``text_1``, ``text_2`` and ``data`` of score.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from observe.senders.request_kinds import AsCompletion
from traces import TraceError, quoted

if TYPE_CHECKING:
    from traces import Trace
    from traces.workload import Api

_KEPT = ("model", "priority")
"""Fields of a completion that these requests have, too."""
_SHORT_QUERY = "A"
"""The query of a request that only counts a text's tokens."""
_RESULTS = {"rerank": "results"}
_VALUES = ("embedding", "data", "probs", "score", "relevance_score")
"""What one of these holds, in the order of the APIs above."""


def body(api: Api, prompt: bytes, fields: Mapping[str, object]) -> bytes:
    """Return the JSON of one request. ``prompt``: its inputs; of rerank and score the query, then the documents."""
    kept = {name: fields[name] for name in _KEPT if name in fields}
    if api == "embeddings":
        kept["encoding_format"] = "float"
    if api in ("rerank", "score"):
        said = orjson.loads(prompt)
        query, documents = (said[0], said[1:]) if isinstance(said, list) else (_SHORT_QUERY, [said])
        names = ("query", "documents") if api == "rerank" else ("text_1", "text_2")
        return orjson.dumps(kept | dict(zip(names, (query, documents), strict=True)))
    return b"".join((orjson.dumps(kept)[:-1], b',"input":', prompt, b"}"))


def as_completion(api: Api, num_inputs: int) -> AsCompletion:
    """Return the reader of answers: one result an input, each with a value, and the usage."""
    holder = _RESULTS.get(api, "data")

    def read(answer: dict[str, Any]) -> dict[str, Any] | str:
        results = answer.get(holder)
        if not isinstance(results, list):
            return f"{holder}: got {quoted(str(results))}, expected a list of {num_inputs}"
        if len(results) != num_inputs:
            return f"{holder}: got {len(results)} results, expected {num_inputs}, one an input"
        for place, each in enumerate(results):
            if not isinstance(each, dict) or not any(_holds(each.get(name)) for name in _VALUES):
                return f"{holder}[{place}]: got no value, expected one of {', '.join(_VALUES)}"
        whole = {"choices": [{"text": holder, "finish_reason": "stop"}]}
        usage = answer.get("usage")
        if not isinstance(usage, dict):
            return whole
        known = {"prompt_tokens": usage.get("total_tokens"), **usage}  # Jina's rerank states the total alone
        return whole | {"usage": {name: known[name] for name in known if name != "completion_tokens"}}

    return read


def _holds(value: object) -> bool:
    """Return whether a value is there: a number, or a list or a text that is not empty."""
    return isinstance(value, int | float) or bool(value)


def as_inputs(workload: Trace, api: Api, *, num_inputs: int) -> Trace:
    """Return the workload whose requests have so many inputs of these lengths, and no output: a prefill is all.

    ``max_tokens`` 1 says that to a simulator. Raises TraceError for rounds that build on answers.
    """
    if workload.cells("new_input_tokens").is_known.any():
        raise TraceError(f"--api {api}: got rounds whose prompts build on answers, which have no text")
    if num_inputs > 1 and workload.cells("prefix_hashes").is_known.any():
        raise TraceError("--batch-inputs: got a workload of block hashes, expected one input a request")
    number = len(workload)
    rest = workload.without_columns("streaming", "cancel_after_tokens", "images", "guided")
    if num_inputs > 1:
        for name in ("input_tokens", "prefix_length"):
            cells = rest.cells(name)
            if cells.is_known.any():
                values = [
                    value * num_inputs if known else None
                    for value, known in zip(cells.values.tolist(), cells.is_known.tolist(), strict=True)
                ]
                rest = rest.with_columns(**{name: values})
    return rest.with_columns(output_tokens=[None] * number, max_tokens=[1] * number)
