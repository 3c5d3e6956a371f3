"""Importers and what is asked of each: a small file for every cell, or the reason why the format leaves it empty.

``CELLS`` is the table: a cell is a file that shows the demand, or a text. ``test_demands.py`` holds each importer to
it, and docs/reference/importers.md is made from it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

import tests.traces.importers.benchmarks.results_of_requests as others
from tests.traces.importers.benchmarks import test_guidellm as guidellm
from tests.traces.importers.logs.test_logs import CHATS, NEW_BURST, PANDAS_AZURE, chat
from tests.traces.importers.otel.spans import chat as otel_chat
from tests.traces.importers.otel.spans import document, vllm
from tests.traces.importers.simulators.test_llmservingsim_workload import call, flat, session
from tests.traces.importers.test_weka import WITH_SUBAGENTS
from traces.importers import PublicFormat

FORMATS: Final = tuple(name for name in get_args(PublicFormat) if name != "tracev2")

DEMANDS: Final = {
    "notes": "What a reader must know of the file goes along and is told by every command.",
    "times": "Without times of sending the load is unknown: no rates, and no simulation of these rows.",
    "failed": "A failed row does not block the file: it is kept as failed or left out, and counted.",
    "sample": "Some of the requests are not the load: the file says how many were made.",
    "counts": "The server's own counts of tokens come before the client's, and the difference is told.",
    "sessions": "Conversations stay conversations.",
    "sharing": "Rounds share what they hold of the rounds before them, or a note says that it is not known.",
    "warm-up": "Warm-up is marked, and in no rate.",
    "part": "Of a file with several runs one is named; all are shown by `trace info` and `report`.",
    "unit": "Units of times and sizes of blocks are checked, told, and can be given.",
}
"""The demands, and what each means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file that shows a demand: its name and content; ``number``: what the demand counts in it."""

    name: str
    content: str | bytes
    number: int = 0

    def written(self, folder: Path) -> Path:
        path = folder / self.name
        path.write_bytes(self.content.encode() if isinstance(self.content, str) else self.content)
        return path


Cell = File | str


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def otlp(*spans: Any) -> str:  # noqa: ANN401  protobuf's class
    return json.dumps(document(*spans))


# -- vllm bench, sglang


def bench(**changed: object) -> dict[str, Any]:
    return {
        "request_rate": 4.0,
        "duration": 2.0,
        "request_throughput": 1.5,
        "input_lens": [100, 200, 300],
        "output_lens": [3, 3, 4],
        "ttfts": [0.1, 0.1, 0.25],
        "itls": [[0.01, 0.03], [0.01, 0.01], [0.05, 0.01, 0.01]],
        "start_times": [10.5, 10.7, 11.0],
        "errors": ["", "", ""],
    } | changed


FAILED: Final = {
    "errors": ["", "boom", ""],
    "output_lens": [3, 0, 4],
    "itls": [[0.01, 0.03], [], [0.1, 0.1, 0.1]],
}
UNTIMED: Final = {name: value for name, value in bench().items() if name != "start_times"}
SGLANG: Final = UNTIMED | {"backend": "sglang", "sharegpt_output_len": None}


# -- aiperf


def aiperf(number: int, **changed: Any) -> dict[str, Any]:  # noqa: ANN401  JSON
    told = {
        "metadata": {
            "x_request_id": f"r{number}",
            "conversation_id": changed.pop("talk", f"c{number}"),
            "turn_index": changed.pop("turn", 0),
            "request_start_ns": 1_790_000_000 * 10**9 + changed.pop("at_ms", 100 * number) * 10**6,
            "benchmark_phase": changed.pop("phase", "profiling"),
        },
        "metrics": {
            name: {"value": value, "unit": unit}
            for name, value, unit in (
                ("input_sequence_length", changed.pop("prompt", 48), "tokens"),
                ("output_sequence_length", changed.pop("output", 30), "tokens"),
                ("time_to_first_token", 100.0, "ms"),
                ("request_latency", 390.0, "ms"),
            )
        },
        "error": None,
    }
    return told | changed


def with_usage(record: dict[str, Any], prompt: int, output: int) -> dict[str, Any]:
    said = {"usage_prompt_tokens": prompt, "usage_completion_tokens": output}
    metrics = {name: {"value": value, "unit": "tokens"} for name, value in said.items()}
    return record | {"metrics": record["metrics"] | metrics}


GONE: Final = {"metrics": {}, "error": {"type": "TimeoutError", "message": "gone"}}


# -- guidellm


def guide(*requests: dict[str, Any], made: int | None = None, rates: int = 1) -> str:
    benchmarks = []
    for rate in range(1, rates + 1):
        errored = [each for each in requests if each["info"]["error"]]
        one = guidellm.benchmark(
            {"type_": "constant", "rate": float(rate)},
            successful=[each for each in requests if not each["info"]["error"]],
            errored=errored,
        )
        if made is not None:
            one["scheduler_metrics"] = {"requests_made": {"successful": made, "errored": 0, "incomplete": 0}}
        benchmarks.append(one)
    return json.dumps(guidellm.report(*benchmarks))


def guide_turn(place: int, prompt: int) -> dict[str, Any]:
    said = guidellm.request(float(place))
    info = said["info"] | {"conversation_id": "a", "turn_index": place}
    return said | {"info": info, "prompt_tokens": prompt}


# -- others


def lifecycle_turn(place: int, prompt: int) -> dict[str, Any]:
    said = others.lifecycle(1000.0 + place)
    usage = {"prompt_tokens": prompt, "completion_tokens": 11}
    info = said["info"]
    response = info["response_metrics"] | {"server_usage": usage}
    return said | {"info": info | {"extra_info": {"user_session": "a"}, "response_metrics": response}}


def genai_turns() -> str:
    told = others.genai_perf()
    told["experiments"][0]["requests"] = [
        others.genai_request(1722 * others.S + place * 500 * others.MS, session="a") for place in range(2)
    ]
    return json.dumps(told)


def moon(number: int, **changed: Any) -> dict[str, Any]:  # noqa: ANN401  JSON
    return {
        "timestamp": 500 * number,
        "input_length": 4096,
        "output_length": 5,
        "hash_ids": [1, 2, 3, 4],
    } | changed


def burst_rows(times: list[int]) -> str:
    head = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    return head + "".join(f"{time},GPT-4,100,20,120,API log\n" for time in times)


_NO_FAILURES: Final = "no failures in the format"
_ALWAYS_TIMES: Final = "every row has a time"
_NO_SAMPLE: Final = "all requests are in it"
_NO_COUNTS: Final = "one count of each length"
_NO_TALKS: Final = "no conversations in the format"
_NO_WARM_UP: Final = "no warm-up in the format"
_ONE_RUN: Final = "one run a file"
_ONE_UNIT: Final = "the format has one unit, no blocks"
_REST: Final = {
    "times": _ALWAYS_TIMES,
    "failed": _NO_FAILURES,
    "sample": _NO_SAMPLE,
    "counts": _NO_COUNTS,
    "sessions": _NO_TALKS,
    "sharing": _NO_TALKS,
    "warm-up": _NO_WARM_UP,
    "part": _ONE_RUN,
    "unit": _ONE_UNIT,
}

_GIVEN: Final[dict[str, dict[str, Cell]]] = {
    "azure": {
        "notes": File(name="a.csv", content=PANDAS_AZURE),
        "failed": File(name="a.csv", content=PANDAS_AZURE, number=4),
        "unit": "wall-clock times with their zone",
    },
    "mooncake": {
        "notes": File(name="m.jsonl", content=lines(moon(0), moon(1))),
        "times": File(name="m.jsonl", content=lines({"input_length": 100, "output_length": 5})),
        "sessions": File(
            name="m.jsonl",
            content=lines(*(moon(i, session_id="a", input_length=100, hash_ids=None) for i in range(2))),
            number=1,
        ),
        "sharing": File(
            name="m.jsonl",
            content=lines(*(moon(i, session_id="a", input_length=100, hash_ids=None) for i in range(2))),
        ),
        "unit": File(name="m.jsonl", content=lines(moon(0), moon(1)), number=1024),
    },
    "llmservingsim": {
        "notes": File(name="w.jsonl", content=lines(flat(0, list(range(40)), 5, ids=False))),
        "sessions": File(
            name="w.jsonl",
            content=lines(session("a", call(list(range(40)), [1] * 5), call(list(range(60)), [1] * 5))),
            number=1,
        ),
        "sharing": File(
            name="w.jsonl",
            content=lines(session("a", call(list(range(40)), [1] * 5), call(list(range(60)), [1] * 5))),
        ),
        "unit": "nanoseconds by the key's name",
    },
    "burstgpt": {
        "notes": File(name="b.csv", content=NEW_BURST),
        "failed": File(name="b.csv", content=NEW_BURST, number=5),
        "sessions": File(name="b.csv", content=NEW_BURST, number=2),
        "sharing": File(name="b.csv", content=NEW_BURST),
    },
    "bailian": {
        "notes": File(name="q.jsonl", content=lines(*CHATS)),
        "failed": File(
            name="q.jsonl", content=lines(*CHATS, chat(7, 20.0, 30, [1, 2]) | {"output_length": 0}), number=4
        ),
        "sessions": File(name="q.jsonl", content=lines(*CHATS), number=2),
        "sharing": File(name="q.jsonl", content=lines(*CHATS)),
        "unit": File(name="q.jsonl", content=lines(*CHATS), number=16),
    },
    "vllm-bench": {
        "notes": File(name="v.json", content=json.dumps(bench())),
        "times": File(name="v.json", content=json.dumps(UNTIMED)),
        "failed": File(name="v.json", content=json.dumps(bench(**FAILED)), number=3),
        "part": File(name="v.json", content=lines(bench(), bench(request_rate=8.0)), number=2),
        "unit": _ONE_UNIT,
    },
    "sglang-bench": {
        "notes": File(name="s.jsonl", content=lines(SGLANG)),
        "times": File(name="s.jsonl", content=lines(SGLANG)),
        "failed": File(name="s.jsonl", content=lines(SGLANG | FAILED), number=3),
        "part": File(name="s.jsonl", content=lines(SGLANG, SGLANG), number=2),
    },
    "aiperf": {
        "notes": File(name="p.jsonl", content=lines(aiperf(0), aiperf(1))),
        "failed": File(name="p.jsonl", content=lines(aiperf(0), aiperf(1, **GONE), aiperf(2)), number=3),
        "counts": File(
            name="p.jsonl",
            content=lines(*(with_usage(aiperf(i, output=60), 43, 30) for i in range(3))),
            number=30,
        ),
        "sessions": File(
            name="p.jsonl",
            content=lines(aiperf(0, talk="a"), aiperf(9, talk="a", turn=1, prompt=160), aiperf(3)),
            number=1,
        ),
        "sharing": File(
            name="p.jsonl",
            content=lines(aiperf(0, talk="a"), aiperf(9, talk="a", turn=1, prompt=50), aiperf(3)),
        ),
        "warm-up": File(
            name="p.jsonl",
            content=lines(
                *(aiperf(i, phase="warmup") for i in range(2)),
                *(aiperf(i, at_ms=60_000 + 100 * i) for i in range(11)),
            ),
            number=2,
        ),
        "unit": "each value has its unit",
    },
    "guidellm": {
        "notes": File(name="g.json", content=guide(guidellm.request(0.0))),
        "failed": File(
            name="g.json", content=guide(guidellm.request(0.0), guidellm.request(1.0, error="x")), number=2
        ),
        "sample": File(
            name="g.json", content=guide(guidellm.request(0.0), guidellm.request(1.0), made=40), number=40
        ),
        "sessions": File(name="g.json", content=guide(guide_turn(0, 100), guide_turn(1, 150)), number=1),
        "sharing": File(name="g.json", content=guide(guide_turn(0, 100), guide_turn(1, 150))),
        "warm-up": "left out of the report, which then is a sample",
        "part": File(name="g.json", content=guide(guidellm.request(0.0), rates=2), number=2),
    },
    "genai-perf": {
        "notes": File(name="profile_export.json", content=json.dumps(others.genai_perf())),
        "failed": File(name="profile_export.json", content=json.dumps(others.genai_perf()), number=6),
        "counts": "the server's alone, from the events",
        "sessions": File(name="profile_export.json", content=genai_turns(), number=1),
        "sharing": File(name="profile_export.json", content=genai_turns()),
        "part": File(name="profile_export.json", content=json.dumps(others.genai_perf(rates=2)), number=2),
    },
    "genai-bench": {
        "notes": File(name="run.json", content=json.dumps(others.genai_bench())),
        "times": File(name="run.json", content=json.dumps(others.genai_bench())),
        "failed": File(name="run.json", content=json.dumps(others.genai_bench()), number=5),
        "unit": File(name="run.json", content=json.dumps(others.genai_bench("s"))),
    },
    "inference-perf": {
        "notes": File(name="per_request.json", content=json.dumps(others.inference_perf())),
        "failed": File(name="per_request.json", content=json.dumps(others.inference_perf()), number=4),
        "counts": File(
            name="per_request.json",
            content=json.dumps([others.lifecycle(1000.0), others.lifecycle(1001.0)]),
            number=11,
        ),
        "sessions": File(
            name="per_request.json",
            content=json.dumps([lifecycle_turn(0, 43), lifecycle_turn(1, 80)]),
            number=1,
        ),
        "sharing": File(
            name="per_request.json", content=json.dumps([lifecycle_turn(0, 43), lifecycle_turn(1, 80)])
        ),
    },
    "llmperf": {
        "notes": File(name="x_individual_responses.json", content=json.dumps(others.llmperf())),
        "times": File(name="x_individual_responses.json", content=json.dumps(others.llmperf())),
        "failed": File(name="x_individual_responses.json", content=json.dumps(others.llmperf()), number=3),
    },
    "vidur": {
        "notes": File(
            name="v.csv", content="arrived_at,num_prefill_tokens,num_decode_tokens\n5.5,10,3\n6,9,2\n"
        ),
        "times": File(name="v.csv", content="num_prefill_tokens,num_decode_tokens\n10,3\n9,2\n"),
    },
    "weka": {
        "notes": File(name="a.json", content=json.dumps(WITH_SUBAGENTS)),
        "sessions": File(name="a.json", content=json.dumps(WITH_SUBAGENTS), number=1),
        "sharing": File(name="a.json", content=json.dumps(WITH_SUBAGENTS)),
        "unit": "the file names its blocks' size",
    },
    "otel": {
        "notes": File(name="o.json", content=otlp(vllm(1))),
        "failed": File(
            name="o.json", content=otlp(otel_chat(1), otel_chat(2, start_s=1.0, failed="x")), number=2
        ),
        "sessions": File(
            name="o.json",
            content=otlp(
                *(
                    vllm(i, start_s=float(i), conversation__id="a", usage__prompt_tokens=100 + 50 * i)
                    for i in (1, 2)
                )
            ),
            number=1,
        ),
        "sharing": File(
            name="o.json",
            content=otlp(
                *(
                    vllm(i, start_s=float(i), conversation__id="a", usage__prompt_tokens=100 + 50 * i)
                    for i in (1, 2)
                )
            ),
        ),
    },
}

CELLS: Final[dict[str, dict[str, Cell]]] = {
    name: {demand: _GIVEN[name].get(demand, _REST.get(demand, "")) for demand in DEMANDS} for name in FORMATS
}


def importers_page() -> str:
    """Return docs/reference/importers.md."""
    head = (
        "# Files of other tools\n\nEvery command that takes a trace takes a file of another tool as well, and tells "
        "its format by its content. This page is made from the table that the tests go through, cell by cell.\n\n"
        "A name may say how the file is read: `report.json#2` is its second run, `trace.jsonl#block_size=1024` has "
        "blocks of 1,024 tokens, `trace.jsonl#time_unit=s` has times in seconds. `vtwin trace info`, `check` and "
        "`convert` have `--part`, `--block-size` and `--time-unit` for the same.\n\n"
        "## What is asked of an importer\n\n"
    )
    asked = "".join(f"- **{demand}**: {meaning}\n" for demand, meaning in DEMANDS.items())
    table = (
        "\n## Importers and demands\n\n| format | "
        + " | ".join(DEMANDS)
        + " |\n"
        + "|---" * (len(DEMANDS) + 1)
        + "|\n"
    )
    for name, cells in CELLS.items():
        table += (
            f"| {name} | "
            + " | ".join("yes" if isinstance(cell, File) else cell for cell in cells.values())
            + " |\n"
        )
    return (
        head
        + asked
        + table
        + "\n`yes`: a test reads a file that shows it. Any other text is why the format cannot.\n"
    )
