"""Addresses, headers and secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

import vtwin
from observe.senders.endpoint import parse_endpoint
from observe.senders.exchange import one_line
from traces import ConfigError
from traces.strict.secrets import redact_command


@pytest.mark.parametrize(
    "url",
    [
        "http://h:8",
        "h:8",
        "http://h:8/",
        "http://h:8/v1",
        "http://h:8/v1/completions",
        "http://h:8/v1/chat/completions/",
    ],
)
def test_an_address_may_be_given_in_any_usual_form(url: str) -> None:
    assert parse_endpoint(url).url("/v1/models") == "http://h:8/v1/models"


def test_a_path_before_v1_stays() -> None:
    assert parse_endpoint("https://gate/llm/v1").base == "https://gate/llm"


def test_the_key_comes_from_the_option_or_else_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("VLLM_API_KEY", "from-env")
    assert parse_endpoint("h").all_headers()["Authorization"] == "Bearer from-env"
    assert parse_endpoint("h", api_key="given").all_headers()["Authorization"] == "Bearer given"


@pytest.mark.parametrize("text", ["nothing", ": value", "bad name: x"])
def test_a_header_without_a_name_is_refused_and_its_value_not_shown(text: str) -> None:
    with pytest.raises(ConfigError, match="--header"):
        parse_endpoint("h", headers=[text])


def test_a_command_line_is_shown_without_its_secrets() -> None:
    line = [
        "vtwin",
        "observe",
        "--api-key",
        "s1",
        "--api-key=s2",
        "--header",
        "Cookie: s3",
        "--header=X-A: b c",
    ]
    shown = redact_command(line)
    assert not any(secret in shown for secret in ("s1", "s2", "s3"))
    assert "X-A: ***" in shown
    assert "b c" not in shown


def test_messages_are_one_line_of_bounded_length() -> None:
    assert one_line("a\n  b\tc") == "a b c"
    assert len(one_line("x" * 10_000)) == 500


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", ["a" * 64, "a..b", f"{'a' * 64}.example.org"])
def test_a_name_that_cannot_be_is_a_server_that_cannot_be_found(
    scheme: str, host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = [
        "--rate",
        "50",
        "--num-requests",
        "1",
        "--prompt-tokens",
        "2",
        "--output-tokens",
        "1",
        "--model",
        "m",
    ]
    call = ["observe", "--url", f"{scheme}://{host}:8000", *load, "--output", str(tmp_path / "t")]
    assert vtwin.main(call) == 4
    said = capsys.readouterr().err
    assert said == f"ServerError: {scheme}://{host}:8000/v1/models: cannot resolve {host}\n"
