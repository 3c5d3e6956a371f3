"""Metrics text, and text of a known number of tokens."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from observe import Settings, observe_with, parse_endpoint
from observe.result.json_document import summarize_observed
from observe.result.summary_table import table
from observe.server.http_client import WholeAnswer
from observe.server.prometheus_text import Sample, parse_metrics
from observe.server.server_facts import facts_of
from observe.server.server_metrics import counter_deltas, learn_from_metrics, spec_decode
from tests.observe.servers import Behaviour, observed, serving
from tests.observe.workloads import every, workload
from traces import ServerInfo, read_trace
from traces.header import CounterReading, SpecDecode

TEXT = """\
# HELP x_total Things.
# TYPE x_total counter
vllm:x_total{engine="0",model_name="tiny"} 3.0
vllm:hist_bucket{le="+Inf"} 4
vllm:hist_sum 1.5e3
vllm:odd{text="a\\"b\\\\c\\nd,}"} 2.5 1700000000
vllm:nan NaN
vllm:inf{a="b"} +Inf
vllm:huge 1e400
broken line
vllm:open{a="b" 1
python_info 1
"""


@pytest.mark.parametrize("piece", ['a="b",', "\\\\", "a", " ", '"', ","])
def test_a_line_of_300_kb_is_read_in_linear_time(piece: str) -> None:
    line = "vllm:x_total{" + (piece * 300_000)[:300_000]
    before = time.process_time()
    for text in (line, line + "}", line + '"} 1', 'vllm:x{a="' + line, 'vllm:x{a="' + line + '"} 1 x'):
        parse_metrics(text)
    assert time.process_time() - before < 2


@pytest.mark.parametrize(
    "text",
    [
        'vllm:cache_config_info{num_gpu_blocks="%s",gpu_memory_utilization="inf"} 1' % ("9" * 5000),
        'vllm:cache_config_info{num_gpu_blocks="-1",gpu_memory_utilization="nan",cache_dtype="a\\nb"} 1',
    ],
    ids=["too long", "no numbers"],
)
def test_labels_that_cannot_be_are_unknown(text: str) -> None:
    info = learn_from_metrics(ServerInfo(), parse_metrics(text))
    assert (info.num_gpu_blocks, info.gpu_memory_utilization, info.kv_cache_dtype) == (None, None, None)


def test_counters_that_cannot_be_are_left_out() -> None:
    before = parse_metrics("vllm:a_total -1e308\nvllm:b_total 1\nvllm:prompt_tokens_total 0")
    after = parse_metrics("vllm:a_total 1e308\nvllm:b_total 2\nvllm:prompt_tokens_total 1e300")
    assert list(counter_deltas(before, after)) == ["vllm:b_total"]


def test_samples_are_read_with_their_labels_and_what_is_none_is_passed_over() -> None:
    samples = parse_metrics(TEXT)
    assert [sample.name for sample in samples] == [
        "vllm:x_total",
        "vllm:hist_bucket",
        "vllm:hist_sum",
        "vllm:odd",
        "python_info",
    ]
    assert samples[0].labels == {"engine": "0", "model_name": "tiny"}
    assert samples[0].key == 'vllm:x_total{engine="0"}'
    assert samples[2].value == 1500
    assert samples[3].labels == {"text": 'a"b\\c\nd,}'}
    assert samples[3].value == 2.5


@pytest.mark.parametrize(
    "line",
    [
        'a{x="' + "y" * 300_000 + '"} 1',
        "a{" + "y" * 300_000 + "} 1",
        'a{x="' + "\\" * 300_000 + '"} 1',
        "a{" + 'x="' * 100_000,
        "a{" + "} " * 150_000,
        "a{" + 'l="v",' * 50_000 + "} 1",
        "a " + " " * 300_000 + "x y",
    ],
    ids=["value", "name", "backslashes", "quotes", "braces", "labels", "spaces"],
)
def test_a_label_line_of_300_kilobytes_takes_no_longer_than_its_length_asks(line: str) -> None:
    before = time.process_time()
    assert len(parse_metrics(line)) <= 1
    assert time.process_time() - before < 2  # quadratic: minutes


def sample(name: str, value: float, **labels: str) -> Sample:
    return Sample(name=name, labels=labels, value=value)


def test_deltas_are_of_counters_that_moved_and_of_those_worth_knowing() -> None:
    before = [sample("vllm:a_total", 1), sample("vllm:b_total", 5), sample("vllm:num_preemptions_total", 0)]
    after = [
        *(sample("vllm:a_total", 4), sample("vllm:b_total", 5), sample("vllm:num_preemptions_total", 0)),
        *(sample("vllm:new_count", 2), sample("vllm:num_requests_running", 9), sample("python_gc_total", 7)),
    ]
    deltas = counter_deltas(before, after)
    assert {name: (reading.before, reading.after) for name, reading in deltas.items()} == {
        "vllm:a_total": (1, 4),
        "vllm:num_preemptions_total": (0, 0),
        "vllm:new_count": (0, 2),
    }


def test_labels_of_a_kind_that_is_not_expected_are_not_known() -> None:
    labels = {
        "num_gpu_blocks": "None",
        "block_size": "16",
        "enable_prefix_caching": "?",
        "cache_dtype": "fp8",
    }
    info = learn_from_metrics(ServerInfo(), [Sample(name="vllm:cache_config_info", labels=labels, value=1)])
    assert (info.num_gpu_blocks, info.block_size, info.enable_prefix_caching) == (None, 16, None)
    assert info.kv_cache_dtype == "fp8"


def data_folder() -> Path:
    root = Path(__file__).resolve().parents[3]
    return Path(os.environ.get("VTWIN_DATA", root.parent / "shared" / "data"))


def test_a_real_servers_metrics_are_understood() -> None:
    folder = data_folder() / "vllm_cpu_0.32_tiny" / "D_poisson_55pct_server_timings"
    if not folder.is_dir():
        pytest.skip("needs the recorded vLLM server's data (VTWIN_DATA)")
    before = parse_metrics((folder / "metrics_before.txt").read_text())
    after = parse_metrics((folder / "metrics_after.txt").read_text())
    info = learn_from_metrics(ServerInfo(), before)
    assert (info.num_gpu_blocks, info.block_size, info.enable_prefix_caching) == (1024, 128, True)
    deltas = counter_deltas(before, after)
    assert deltas['vllm:num_preemptions_total{engine="0"}'].after == 0
    tokens = deltas['vllm:generation_tokens_total{engine="0"}']
    assert tokens.after - tokens.before > 1000


@pytest.mark.parametrize("long_words_are_two", [False, True])
async def test_on_chat_lengths_are_exact_where_the_server_can_tokenize(long_words_are_two: bool) -> None:
    behaviour = Behaviour(tokenize=True, long_words_are_two=long_words_are_two, overhead=9)
    requests = workload(every(1000, 6)).with_columns(input_tokens=[11, 12, 40, 100, 500, 1000])
    async with serving(behaviour) as server:
        settings = Settings(endpoint=parse_endpoint(server.url), api="chat")
        trace = (await observe_with(requests, settings)).trace
        assert all(request.path == "/v1/chat/completions" for request in server.requests)
    assert list(trace.column("server_input_tokens")) == [11, 12, 40, 100, 500, 1000]
    assert trace.header.client is not None
    assert trace.header.client.prompt_source == "words of one token each, by the server's /tokenize"


async def test_on_chat_a_prefix_group_shares_the_template_and_its_words() -> None:
    requests = workload([0, 0], input_tokens=30, prefix_group=["g", "g"], prefix_length=[64, 64])
    async with serving(Behaviour(tokenize=True, overhead=9)) as server:
        await observe_with(requests, Settings(endpoint=parse_endpoint(server.url), api="chat"))
        one, two = (server.tokens_of(request.body) for request in server.requests)
    shared = next(place for place, (a, b) in enumerate(zip(one, two, strict=True)) if a != b)
    assert 64 <= shared <= 66
    assert len(one) == 94


@pytest.mark.parametrize("behaviour", [{"long_words_are_two": True}, {"early_words_are_three": True}])
async def test_on_chat_without_tokenize_the_ratio_is_measured_and_said(behaviour: dict[str, bool]) -> None:
    """Of words in the order of the alphabet the first twenty tell little of all: 64 tokens were 55 on a real vLLM."""
    requests = workload(every(1000, 3)).with_columns(input_tokens=[50, 200, 800])
    async with serving(Behaviour(**behaviour)) as server:  # type: ignore[arg-type]  # its switches
        trace = (
            await observe_with(requests, Settings(endpoint=parse_endpoint(server.url), api="chat"))
        ).trace
    counted = trace.column("server_input_tokens").to_numpy(dtype=np.int64)
    assert np.all(np.abs(counted - [50, 200, 800]) <= 0.1 * np.array([50, 200, 800]))
    assert trace.header.client is not None
    assert "measured" in (trace.header.client.prompt_source or "")


def test_the_flags_of_an_emulated_server_are_learnt_from_its_metrics() -> None:
    labels = {"max_num_seqs": "32", "max_num_batched_tokens": "512", "async_scheduling": "False"}
    labels["scheduling_policy"] = "priority"
    info = learn_from_metrics(
        ServerInfo(), [Sample(name="vtwin:scheduler_config_info", labels=labels, value=1)]
    )
    assert (info.max_num_seqs, info.max_num_batched_tokens) == (32, 512)
    assert (info.async_scheduling, info.scheduling_policy) == (False, "priority")
    assert info.sources["max_num_seqs"] == "/metrics vtwin:scheduler_config_info"


def test_speculative_decoding_is_read_from_the_counters_of_all_engines() -> None:
    name = "vllm:spec_decode_num"
    deltas = {
        f'{name}_drafts_total{{engine="0"}}': CounterReading(before=100, after=180),
        f'{name}_drafts_total{{engine="1"}}': CounterReading(before=0, after=20),
        f'{name}_draft_tokens_total{{engine="0"}}': CounterReading(before=0, after=300),
        f'{name}_accepted_tokens_total{{engine="0"}}': CounterReading(before=50, after=170),
        f'{name}_accepted_tokens_per_pos_total{{engine="0",position="0"}}': CounterReading(
            before=30, after=100
        ),
        f'{name}_accepted_tokens_per_pos_total{{engine="1",position="0"}}': CounterReading(
            before=0, after=10
        ),
        f'{name}_accepted_tokens_per_pos_total{{engine="0",position="2"}}': CounterReading(
            before=20, after=60
        ),
    }
    assert spec_decode(deltas) == SpecDecode(
        num_drafts=100,
        num_draft_tokens=300,
        num_accepted_tokens=120,
        mean_accepted_length=2.2,
        accepted_frac_per_position=(0.8, 0.0, 0.4),
    )
    assert spec_decode({}) is None


async def test_acceptance_by_position_is_in_the_header_and_the_summary(tmp_path: Path) -> None:
    async with serving() as server:
        server.more_metrics = lambda: "".join(
            f'vllm:spec_decode_num_{name}_total{{engine="0"{label}}} {count * len(server.requests)}\n'
            for name, label, count in (
                ("drafts", "", 10),
                ("draft_tokens", "", 20),
                ("accepted_tokens", "", 12),
                ("accepted_tokens_per_pos", ',position="0"', 8),
                ("accepted_tokens_per_pos", ',position="1"', 4),
            )
        )
        seen = await observed(server, workload([0, 0]), output=tmp_path / "run")
    spec = read_trace(tmp_path / "run").header.spec_decode
    assert spec is not None
    assert spec.accepted_frac_per_position == (0.8, 0.4)
    summary = summarize_observed(seen.trace)
    assert summary["spec_decode"] is not None
    assert summary["spec_decode"]["mean_accepted_length"] == 2.2
    assert "2.2 tokens per step, 24 of 40 drafted tokens accepted; by position: 80.0%, 40.0%" in table(
        summary
    )


def listing(**entry: str) -> WholeAnswer:
    return WholeAnswer(
        status=200, body=json.dumps({"data": [{"id": "chat", "owned_by": "vllm", **entry}]}).encode()
    )


def test_what_the_model_was_loaded_from_is_read_where_it_is_not_the_served_name() -> None:
    facts = facts_of(listing(root="Qwen/Qwen3-14B"), version=None, scrape=None, model=None)
    assert (facts.info.model, facts.info.model_root) == ("chat", "Qwen/Qwen3-14B")
    assert facts.info.sources["model_root"] == "/v1/models"
    for same in (listing(root="chat"), listing()):
        assert facts_of(same, version=None, scrape=None, model=None).info.model_root is None
