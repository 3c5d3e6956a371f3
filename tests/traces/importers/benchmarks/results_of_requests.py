"""Results per request as other load generators write them, small and made up."""

from __future__ import annotations

import json
from typing import Any

S = 1_000_000_000
MS = 1_000_000


def event(text: str | None, usage: dict[str, int] | None = None) -> dict[str, str]:
    """perf_analyzer's copy of one event of a chat answer."""
    choices = [] if text is None else [{"index": 0, "delta": {"content": text}}]
    said = {"object": "chat.completion.chunk", "choices": choices} | ({"usage": usage} if usage else {})
    return {"response": f"data: {json.dumps(said)}\n\n"}


def genai_request(at_ns: int, *, usage: bool = True, session: str | None = None) -> dict[str, Any]:
    """Four tokens, 10 ms apart, the first after 60 ms; 240 characters of prompt."""
    outputs = [event(""), *[event("tok") for _ in range(4)]]
    outputs += [event(None, {"prompt_tokens": 50, "completion_tokens": 4})] if usage else []
    outputs.append({"response": "data: [DONE]\n\n"})
    body = {"messages": [{"role": "user", "content": "hello " * 40}], "max_tokens": 4}
    inputs = {"payload": json.dumps(body)} | ({"session_id": session} if session else {})
    times = [at_ns + 50 * MS + 10 * MS * place for place in range(len(outputs))]
    return {
        "timestamp": at_ns,
        "request_inputs": inputs,
        "response_timestamps": times,
        "response_outputs": outputs,
    }


def genai_perf(*, rates: int = 1, usage: bool = True) -> dict[str, Any]:
    failed = {"timestamp": 1722 * S + S, "request_inputs": {"payload": '{"prompt": "abcd"}'}}
    failed |= {"response_timestamps": [], "response_outputs": []}
    return {
        "service_kind": "openai",
        "endpoint": "v1/chat/completions",
        "experiments": [
            {
                "experiment": {"mode": "concurrency", "value": value},
                "requests": [
                    *[genai_request(1722 * S + place * 100 * MS, usage=usage) for place in range(5)],
                    failed,
                ],
                "window_boundaries": [],
            }
            for value in range(1, rates + 1)
        ],
    }


def lifecycle(start_s: float, **changes: Any) -> dict[str, Any]:  # noqa: ANN401  JSON
    """inference-perf's request since 2026: 11 tokens of the server, 20 ms apart, the first after 100 ms."""
    info = {
        "request_metrics": {"text": {"input_tokens": 40}},
        "response_metrics": {
            "output_tokens": 9,
            "server_usage": {"prompt_tokens": 43, "completion_tokens": 11},
            "response_chunks": ["data: words"],
            "output_token_times": [round(start_s + 0.1 + 0.02 * place, 6) for place in range(11)],
        },
        "extra_info": {},
        "input_tokens": 40,
    }
    row = {
        "start_time": start_s,
        "end_time": start_s + 0.3,
        "request": '{"prompt": "words", "max_tokens": 16}',
    }
    return row | {"response": "words", "info": info, "error": None} | changes


def inference_perf() -> list[dict[str, Any]]:
    error = {"error_type": "ClientError", "error_msg": "gone"}
    return [
        lifecycle(1000.0),
        lifecycle(1001.0),
        lifecycle(1002.0, info={"input_tokens": 0}, error=error),
        lifecycle(
            1003.0, info={"input_tokens": 30, "output_tokens": 0, "output_token_times": []}, error=error
        ),
    ]


def genai_bench(unit: str = "ms") -> dict[str, Any]:
    scale = {"ms": 1.0, "s": 0.001}[unit]
    rows: list[dict[str, Any]] = [
        {
            "ttft": (100 + place) * scale,
            "tpot": 10.0 * scale,
            "e2e_latency": (500 + place) * scale,
            "num_input_tokens": 92,
            "num_output_tokens": 41,
            "error_code": None,
            "error_message": None,
        }
        for place in range(3)
    ]
    rows.append(dict.fromkeys(rows[0]) | {"error_code": 500, "error_message": "no"})
    rows.append(dict.fromkeys(rows[0]) | {"error_code": 400, "num_input_tokens": 7})
    figures = {"scenario": "D(100,100)", "num_concurrency": 8, "iteration_type": "num_concurrency"}
    figures |= {"run_duration": 60, "requests_per_second": 2.5}
    return {"aggregated_metrics": figures, "individual_request_metrics": rows, "_time_unit": unit}


def llmperf() -> list[dict[str, Any]]:
    answered = {
        "error_code": None,
        "error_msg": "",
        "inter_token_latency_s": 0.046,
        "ttft_s": 0.6,
        "end_to_end_latency_s": 7.4,
        "number_total_tokens": 710,
        "number_output_tokens": 161,
        "number_input_tokens": 550,
    }
    failed = answered | {"error_code": 500, "error_msg": "no", "ttft_s": 0, "end_to_end_latency_s": 0}
    return [answered, answered | {"ttft_s": 0.5}, failed | {"number_output_tokens": 0}]
