"""Exact chat prompts by a tokenizer of one's own, where the server does not tokenize."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from observe import Observation, Settings, observe_with, parse_endpoint
from observe.plan.local_tokenizer import LocalTokenizer
from tests.observe.servers import Behaviour, serving
from tests.observe.workloads import every, workload
from traces import ConfigError

LENGTHS = [20, 21, 50, 100, 500, 1000]


@pytest.fixture
def tokenizer_json(tmp_path: Path) -> Path:
    """A tokenizer that splits as the tests' server does: words, long ones in two."""
    tokenizers = pytest.importorskip("tokenizers", reason="the extra tokenizer is not installed")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))  # noqa: S106
    split = tokenizers.pre_tokenizers.Split
    long_word = tokenizers.Regex(r"^\w{4}(?=\w{3})")
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [split(" ", behavior="removed"), split(long_word, behavior="isolated")]
    )
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    return path


async def observed(behaviour: Behaviour, tokenizer: Path) -> Observation:
    requests = workload(every(1000, len(LENGTHS))).with_columns(input_tokens=LENGTHS)
    async with serving(behaviour) as server:
        settings = Settings(endpoint=parse_endpoint(server.url), api="chat", tokenizer=tokenizer)
        return await observe_with(requests, settings)


async def test_on_chat_lengths_are_exact_by_a_local_tokenizer(tokenizer_json: Path) -> None:
    seen = await observed(Behaviour(long_words_are_two=True, overhead=9), tokenizer_json.parent)
    assert list(seen.trace.column("server_input_tokens")) == LENGTHS
    client = seen.trace.header.client
    assert client is not None
    source = "words of one token each, by the tokenizer tokenizer.json, 9 tokens around the text"
    assert client.prompt_source == source


async def test_a_server_that_tokenizes_is_believed_before_the_file(tokenizer_json: Path) -> None:
    seen = await observed(Behaviour(tokenize=True, overhead=9), tokenizer_json)
    assert list(seen.trace.column("server_input_tokens")) == LENGTHS
    client = seen.trace.header.client
    assert client is not None
    assert client.prompt_source == "words of one token each, by the server's /tokenize"


async def test_another_models_tokenizer_is_refused(tokenizer_json: Path) -> None:
    with pytest.raises(ConfigError, match="whose counts differ from the server's, expected that of tiny"):
        await observed(Behaviour(long_words_are_two=False), tokenizer_json)


def test_what_is_no_tokenizer_is_refused_in_one_line(
    tokenizer_json: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LocalTokenizer(tokenizer_json).count("a temperature") == 3
    with pytest.raises(ConfigError, match=r"got no such file, expected a tokenizer\.json"):
        LocalTokenizer(tokenizer_json.parent / "none")
    tokenizer_json.write_text("{}")
    with pytest.raises(ConfigError, match=r"--tokenizer: got .*, expected a tokenizer.json"):
        LocalTokenizer(tokenizer_json)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ConfigError, match=r"pip install 'vtwin\[tokenizer\]'"):
        LocalTokenizer(tokenizer_json)
