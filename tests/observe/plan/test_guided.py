"""Guided decoding: which requests a schema constrains, what their bodies say, and what is recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vtwin
from observe.plan.guided import guided_fields, guided_rows, read_schema
from observe.settings import GuidedDecoding
from tests.observe.servers import Behaviour, observed, serving, serving_in_thread
from tests.observe.workloads import every, workload
from traces import ConfigError, read_trace

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
GUIDED = GuidedDecoding(name="my schema.json", schema=SCHEMA)


async def test_a_guided_request_names_the_schema_and_nothing_that_would_hold_its_length() -> None:
    async with serving() as server:
        seen = await observed(server, workload([0, 0, 0], guided=[True, False, None]), guided=GUIDED)
        bodies = {request.headers["x-request-id"]: request.body for request in server.requests}
    first, second, third = (bodies[name] for name in seen.trace.column("x_request_id"))
    assert first["structured_outputs"] == {"json": SCHEMA}
    assert not {"min_tokens", "ignore_eos"} & first.keys()
    for body in (second, third):
        assert "structured_outputs" not in body
        assert body["ignore_eos"] is True
    assert seen.trace.column("guided").fillna(False).tolist() == [True, False, False]
    client = seen.trace.header.client
    assert client is not None
    assert (client.guided_schema, client.guided_schema_sha256) == ("my schema.json", GUIDED.sha256)
    assert "1 of 3 requests are guided: their answers end where the schema ends" in client.notes


async def test_a_trace_that_is_guided_and_no_schema_is_told() -> None:
    async with serving() as server:
        seen = await observed(server, workload([0, 0], guided=[True, True]))
        assert all("structured_outputs" not in request.body for request in server.requests)
    assert "2 requests are guided in the trace and sent without a schema (--guided SCHEMA.json)" in seen.notes
    assert not seen.trace.column("guided").fillna(False).any()


def test_other_servers_and_older_vllms_are_asked_in_openais_words() -> None:
    asked = {"type": "json_schema", "json_schema": {"name": "my_schema_json", "schema": SCHEMA}}
    assert guided_fields(GUIDED, is_vllm=False, version=None) == {"response_format": asked}
    assert guided_fields(GUIDED, is_vllm=True, version="0.11.2") == {"response_format": asked}
    newer = {"structured_outputs": {"json": SCHEMA}}
    for version in ("0.12.0", "0.32.0rc1", "1.0", "dev", None):
        assert guided_fields(GUIDED, is_vllm=True, version=version) == newer


def test_a_fraction_picks_the_same_requests_whatever_their_order() -> None:
    requests = workload(every(1, 2000))
    half = GuidedDecoding(name="s", schema=SCHEMA, frac=0.5)
    chosen = guided_rows(requests, half)
    assert len(chosen) == 1000
    assert guided_rows(requests, GuidedDecoding(name="s", schema=SCHEMA, frac=0.2)) < chosen
    assert len(guided_rows(workload(every(1, 80)), half)) == 40
    backwards = workload(every(1, 2000)).with_columns(request_id=[str(1999 - row) for row in range(2000)])
    assert {1999 - row for row in guided_rows(backwards, half)} == chosen
    assert len(guided_rows(requests, GUIDED)) == 2000
    assert guided_rows(requests, GuidedDecoding(name="s", schema=SCHEMA, frac=0.0)) == frozenset()
    assert guided_rows(requests, None) == frozenset()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "got no JSON"),
        ("[1]", "got list, expected a JSON object"),
        (" " * (1 << 20) + "{}", "got more than 1048576 bytes"),
    ],
    ids=["broken", "list", "huge"],
)
def test_what_is_no_schema_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"--guided: {said}"):
        read_schema(path)
    with pytest.raises(ConfigError, match="--guided: got No such file"):
        read_schema(tmp_path / "none.json")


def test_the_command_counts_what_was_guided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = tmp_path / "s.json"
    schema.write_text(json.dumps(SCHEMA))
    load = ["--rate", "200", "--num-requests", "8", "--prompt-tokens", "9", "--output-tokens", "4"]
    with serving_in_thread(Behaviour()) as server:
        command = ["observe", "--url", server.url, *load, "--output", str(tmp_path / "run"), "--json"]
        assert vtwin.main([*command, "--guided-frac", "0.5"]) == 2
        assert "--guided-frac: needs --guided" in capsys.readouterr().err
        assert vtwin.main([*command, "--guided", str(schema), "--guided-frac", "0.5"]) == 0
    out, err = capsys.readouterr()
    guided = read_trace(tmp_path / "run").column("guided").fillna(False)
    assert json.loads(out)["num_guided"] == guided.sum() > 0
    assert f"{guided.sum()} guided" in err
