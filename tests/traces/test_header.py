"""The header is strict, and says where it is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from traces import Header, ServerInfo, TraceError
from traces.header import header_yaml, parse_header


def filled(kind: Any, name: str = "") -> Any:  # noqa: ANN401  a type hint, and a value of it
    """Return a value of the type with every member set."""
    origin = get_origin(kind)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{member.name: filled(hints[member.name], member.name) for member in fields(kind)})
    if origin in (Union, UnionType):
        return filled(get_args(kind)[0], name)
    if origin is Mapping:
        return {"key: # odd": filled(get_args(kind)[1])}
    if origin is tuple:
        return (filled(get_args(kind)[0]),) * 2
    if name == "mode":
        return "replayed"
    return {int: 7, float: 1e-5, bool: False, str: "123: text #"}[kind]


def test_a_header_with_every_key_set_comes_back_as_it_was() -> None:
    header = filled(Header)
    assert parse_header(header_yaml(header), "t.yaml") == header


def test_an_empty_header_is_all_defaults() -> None:
    assert parse_header("{}", "t.yaml") == Header()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "mode: real\nwarmup_requests: 2\n",
            "warmup_requests: got an unknown key, expected a key of a TraceV2 header; "
            "did you mean warm_up_requests? (t.yaml:2)",
        ),
        (
            "server:\n  model: m\n  modle: m\n",
            "server.modle: got an unknown key, expected a key of a TraceV2 header; "
            "did you mean server.model? (t.yaml:3)",
        ),
        ("network:\n  zzz: 1\n", "network.zzz: got an unknown key, expected a key of a TraceV2 header; "
         "known are measured_rtt_ms (t.yaml:2)"),
        ("seed: many\n", 'seed: got "many", expected an integer (t.yaml:1)'),
        ("seed: [1]\n", "seed: got a list, expected an integer (t.yaml:1)"),
        ("server: vllm\n", 'server: got "vllm", expected a mapping (t.yaml:1)'),
        ("mode: live\n", "mode: got 'live', expected one of real, generated, replayed (t.yaml:1)"),
        ("seed: 1\nseed: 2\n", "seed: got the key twice, expected it once (t.yaml:2)"),
        ("closed_loop: {think_time_us: 5}\n", "closed_loop: got a mapping, expected the key concurrency (t.yaml:1)"),
        ("closed_loop: {concurrency: 0}\n", "closed_loop.concurrency: got 0, expected an integer from 1 to 50,000,000 "
         "(t.yaml:1)"),
        ("closed_loop:\n  concurrency: 1\n  think_time_us: -1\n", "closed_loop.think_time_us: got -1, expected an "
         "integer from 0 to 9,007,199,254,740,992 (t.yaml:3)"),
        ("hash_block_size: 0\n", "hash_block_size: got 0, expected an integer >= 1"),
        ("client: {limited: maybe}\n", 'client.limited: got "maybe", expected true or false (t.yaml:1)'),
        ("kv_offload: {secondary_tiers: [{type: fs}, {typo: a}]}\n", "kv_offload.secondary_tiers[1].typo: "),
        ("a: [\n", "expected YAML (t.yaml:2)"),
        ("", "a TraceV2 header: got an empty file, expected YAML (t.yaml)"),
        ("- 1\n", "a TraceV2 header: got a list, expected a mapping (t.yaml:1)"),
    ],
)  # fmt: skip
def test_a_bad_header_is_refused_in_one_line(text: str, expected: str) -> None:
    with pytest.raises(TraceError, match=re.escape(expected)) as caught:
        parse_header(text, "runs/t.yaml")
    assert "\n" not in str(caught.value)


def test_a_server_learns_with_the_source_of_each_value() -> None:
    server = ServerInfo().learn("/v1/models", model="m", max_model_len=4096).learn("/version", version=None)
    assert (server.model, server.max_model_len, server.version) == ("m", 4096, None)
    assert server.sources == {"model": "/v1/models", "max_model_len": "/v1/models"}
