"""Flags whose value is JSON, said key by key: put together as vLLM's own parser does it."""

from __future__ import annotations

import json

import pytest

from replay.twin.start.json_flags import offloading_gib, with_json_flags
from replay.twin.start.serve_flags import parse_serve
from traces import ConfigError

MTP = '{"method": "mtp", "num_speculative_tokens": 2}'


@pytest.mark.parametrize(
    "flags",
    [
        f"--speculative-config '{MTP}'",
        "--speculative-config.method mtp --speculative-config.num_speculative_tokens 2",
        "--speculative_config.method=mtp --speculative-config.num_speculative_tokens=2",
        "--spec-method mtp --spec-tokens 2",
        "--spec-tokens=2 --speculative-config.method mtp",
        '--speculative-config.num_speculative_tokens 2 --speculative-config \'{"method": "mtp"}\'',
    ],
)
def test_drafts_are_the_same_whichever_way_they_are_said(flags: str) -> None:
    served = parse_serve(f"vllm serve org/model {flags} --max-num-seqs 8")
    assert (
        served.engine
        == parse_serve(f"vllm serve org/model --speculative-config '{MTP}' --max-num-seqs 8").engine
    )
    assert served.engine["num_speculative_tokens"] == 2
    assert served.engine["speculative_method"] == "mtp"


@pytest.mark.parametrize(
    ("flags", "is_eager"),
    [
        ("-O0", True),
        ("-O=0", True),
        ("-O 0", True),
        ("--optimization-level 0", True),
        ("-O.mode=0", True),
        ("-O '{\"level\": 0}'", True),
        ("-cc.mode NONE", True),
        ("--compilation-config.cudagraph_mode none", True),
        ('--compilation-config \'{"mode": 0, "cudagraph_mode": "NONE"}\'', True),
        ("--compilation-config '{\"use_cudagraph\": false}'", True),
        ("-O0 -cc.cudagraph_mode=FULL", False),
        ("-O0 -cc.cudagraph_mode=FULL_AND_PIECEWISE", True),
        ("-cc.mode=0 -cc.cudagraph_mode=FULL_DECODE_ONLY", False),
        ("-O1", False),
        ("-O3 -cc.mode=3", False),
        ("", False),
    ],
)
def test_a_server_without_cuda_graphs_is_an_eager_one(flags: str, is_eager: bool) -> None:
    served = parse_serve(f"vllm serve org/model {flags}")
    assert served.engine.get("enforce_eager", False) is is_eager
    assert any("leaves no CUDA graphs" in note for note in served.notes) is is_eager
    assert served.model == "org/model"
    assert not [flag for flag in served.others if flag.reason.startswith("not in the twin")]


def test_keys_lie_in_each_other_and_other_words_stay() -> None:
    words = ["org/model-0.5B", "--limit-mm-per-prompt.image", "4", "--hf-overrides.a.b=1.5", "-tp", "2"]
    *plain, first, limits, second, overrides = with_json_flags(words)
    assert plain == ["org/model-0.5B", "-tp", "2"]
    assert (first, json.loads(limits)) == ("--limit-mm-per-prompt", {"image": 4})
    assert (second, json.loads(overrides)) == ("--hf-overrides", {"a": {"b": 1.5}})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--speculative-config.method"], "--speculative-config.method: got nothing, expected a value"),
        (["--spec-method", "--spec-tokens", "2"], "--spec-method: got nothing, expected a value"),
        (
            ["--speculative-config", "mtp", "--spec-tokens", "2"],
            "got another text, expected a JSON object beside",
        ),
    ],
)
def test_what_has_no_value_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        with_json_flags(words)


def test_the_offloading_connector_s_memory_is_the_tier_s() -> None:
    said = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}
    whole = {**said, "kv_connector_extra_config": {"cpu_bytes_to_use": 64 * 2**30}}
    assert offloading_gib("--kv-transfer-config", json.dumps(whole)) == 64
    assert offloading_gib("--kv-transfer-config", json.dumps(said)) is None
    assert offloading_gib("--kv-transfer-config", '{"kv_connector": "NixlConnector"}') is None
    served = parse_serve(f"vllm serve org/model --kv-transfer-config '{json.dumps(whole)}'")
    assert served.hardware == {"kv_offloading_size": 64.0}
    for wrong in (
        '{"kv_connector": "OffloadingConnector", "kv_connector_extra_config": {"cpu_bytes_to_use": "a"}}',
        "a",
    ):
        with pytest.raises(ConfigError, match="--kv-transfer-config: got"):
            offloading_gib("--kv-transfer-config", wrong)


def test_sizes_are_readable_numbers_and_deep_json_is_no_stack() -> None:
    flag = "--kv-transfer-config"
    words = [f"{flag}.kv_connector", "OffloadingConnector"]
    words += [f"{flag}.kv_connector_extra_config.cpu_bytes_to_use", "64G"]
    assert offloading_gib(flag, with_json_flags(words)[1]) == 64
    deep = "[" * 100_000
    assert json.loads(with_json_flags(["--a.b", deep])[1]) == {"b": deep}


@pytest.mark.parametrize("flag", ["--speculative-config", "--kv-transfer-config"])
def test_json_that_lost_its_quotes_in_a_shell_is_told_of_them(flag: str) -> None:
    with pytest.raises(ConfigError, match="single quotes around it and double quotes around each key"):
        parse_serve(f"vllm serve org/model {flag} {{method:ngram}}")


@pytest.mark.parametrize("flag", ["--hf-overrides", "--compilation-config", "--override-generation-config"])
def test_json_without_its_quotes_is_answered_with_them(flag: str) -> None:
    for value in ("{rope:1}", "{rope_scaling:{factor:4}}"):
        with pytest.raises(ConfigError, match=f"{flag}: got text that is not JSON.*single quotes around it"):
            parse_serve(f"vllm serve m {flag} {value}")
    parse_serve(f"""vllm serve m {flag} '{{"rope": 1}}'""")
