"""Transcriptions: a form with a drawn sound, read back by other readers, and answers in the words of a chat."""

from __future__ import annotations

import asyncio
import io
import wave
from pathlib import Path
from typing import Any

import pytest
from aiohttp import BodyPartReader, MultipartReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.streams import StreamReader
from hypothesis import given
from hypothesis import strategies as st

from observe.kinds import transcriptions
from observe.kinds.sound_prompts import SoundPrompts
from observe.plan.prompts import BLOCK, GROUP, OWN, Segment
from observe.result.json_document import summarize_observed
from observe.senders.request_kinds import KINDS, content_type
from tests.observe.servers import Behaviour, observed, serving
from tests.observe.workloads import every, statuses, workload
from traces import ConfigError, TraceError, read_trace

API = "transcriptions"
SECONDS = 0.01
FIELDS = {"model": "m", "max_completion_tokens": 4, "temperature": 0, "stream": True, "min_tokens": 4}


def length_s(sound: bytes) -> float:
    """Return how long a WAV file is, by the standard library."""
    with wave.open(io.BytesIO(sound)) as file:
        return file.getnframes() / file.getframerate()


async def test_a_transcription_is_measured_as_a_chat_is(tmp_path: Path) -> None:
    requests = workload(every(2000, 3), input_tokens=40, output_tokens=6, vllm_priority=[0, 1, 2])
    async with serving(Behaviour(ttft_s=0.03, itl_s=0.01)) as server:
        seen = await observed(server, requests, api=API, audio_seconds=SECONDS, output=tmp_path / "o")
        sent = server.requests[-3:]
    for each in sent:
        assert each.path == "/v1/audio/transcriptions"
        sound = each.body.pop("file")
        assert length_s(sound) == pytest.approx(40 * SECONDS)
        assert each.body == {
            "model": "tiny",
            "max_completion_tokens": "6",
            "temperature": "0",
            "stream": "true",
            "stream_include_usage": "true",
            "stream_continuous_usage_stats": "true",
        }
    trace = read_trace(tmp_path / "o")
    assert statuses(trace) == ["ok"] * 3
    assert list(trace.column("output_tokens")) == [6] * 3 and list(trace.column("input_tokens")) == [40] * 3
    assert trace.cells("server_input_tokens").is_known.sum() == 0
    assert list(trace.column("finish_reason")) == ["length"] * 3
    summary = summarize_observed(trace)
    assert 30_000 <= (summary["ttft_us"]["mean"] or 0) < 200_000
    assert (summary["tpot_us"]["mean"] or 0) >= 9_000
    assert summary["prompt_tokens"]["mean"] == 40
    client = trace.header.client
    assert client is not None and client.ignore_eos is False
    assert client.prompt_source == "drawn sound, 0.01 s a token, 16000 samples a second"
    assert any("--api transcriptions has no ignore_eos, min_tokens, priority" in note for note in seen.notes)
    assert not any("cached_tokens" in note or "fingerprint" in note for note in seen.notes)


async def test_a_run_again_sends_the_same_lengths_and_other_sounds() -> None:
    async with serving() as server:
        how: dict[str, Any] = {"api": API, "audio_seconds": SECONDS, "probe": False}
        first = await observed(server, workload(every(1000, 2), input_tokens=20), **how)
        await observed(server, first.trace.with_columns(server_input_tokens=[400, 400]), **how)
        sounds = [each.body["file"] for each in server.requests]
    assert {length_s(each) for each in sounds} == {20 * SECONDS}
    assert len(set(sounds)) == 4


async def test_an_answer_in_one_piece_has_its_end_and_no_tokens() -> None:
    async with serving() as server:
        seen = await observed(
            server, workload(every(1000, 2)), api=API, audio_seconds=SECONDS, streaming=False
        )
        assert server.requests[-1].body["stream"] == "false"
        assert "stream_include_usage" not in server.requests[-1].body
    assert statuses(seen.trace) == ["ok", "ok"]
    assert seen.trace.cells("output_tokens").is_known.sum() == 0
    assert seen.trace.cells("last_token_time_us").is_known.all()


async def test_what_no_sound_has_is_told_or_refused() -> None:
    rounds = workload([0, None], new_input_tokens=[8, 8], session_id=["a", "a"], round_index=[0, 1])
    hours = workload([0, 1], input_tokens=8).with_columns(input_tokens=[8, 400_000])
    shared = workload([0, 1], prefix_group=["a", "a"], prefix_length=[4, 4], image_tokens=[4, None])
    async with serving() as server:
        with pytest.raises(TraceError, match="--api transcriptions: got rounds"):
            await observed(server, rounds, api=API, audio_seconds=SECONDS)
        with pytest.raises(TraceError, match=r"row 2, input_tokens: got 400,000, a sound of 4,000 s"):
            await observed(server, hours, api=API, audio_seconds=SECONDS)
        with pytest.raises(ConfigError, match="--api transcriptions: needs --audio-seconds"):
            await observed(server, workload([0]), api=API)
        seen = await observed(server, shared, api=API, audio_seconds=SECONDS)
        assert length_s(server.requests[-1].body["file"]) == pytest.approx(12 * SECONDS)
    assert "2 requests share prompts' beginnings: each is sent as a sound of its own" in seen.notes
    assert "1 requests have image, audio or video tokens: sent as as many tokens of sound" in seen.notes
    assert not any("of text" in note for note in seen.notes)


def test_equal_parts_are_equal_sounds_and_others_are_not() -> None:
    prompts = SoundPrompts(salt=1, seconds=SECONDS)
    parts = [Segment(GROUP, 3, 5), Segment(OWN, 1, 4)]
    drawn = prompts.render(parts)
    assert drawn == prompts.render(list(parts)) != prompts.salted(2).render(parts)
    others = ([Segment(GROUP, 3, 5), Segment(OWN, 2, 4)], [Segment(BLOCK, 3, 5), Segment(OWN, 1, 4)])
    assert len({drawn, *map(prompts.render, others)}) == 3


@given(st.binary(max_size=300), st.from_regex(r"[A-Za-z0-9/._-]{1,20}", fullmatch=True))
async def test_any_sound_comes_out_of_the_form_as_it_went_in(sound: bytes, model: str) -> None:
    """By aiohttp's reader, which is another's: bytes that look like a form's end included."""
    sound = b"\r\n--vtwin" + sound + b"--\r\n"
    body = transcriptions.body("transcriptions", sound, FIELDS | {"model": model})
    kind = content_type(KINDS["transcriptions"].path)
    stream = StreamReader(BaseProtocol(asyncio.get_running_loop()), limit=1 << 16)
    stream.feed_data(body)
    stream.feed_eof()
    found = {}
    async for part in MultipartReader({"Content-Type": kind}, stream):
        assert isinstance(part, BodyPartReader)
        found[part.name] = bytes(await part.read())
    asked = {"model": model.encode(), "max_completion_tokens": b"4", "temperature": b"0", "stream": b"true"}
    assert found == {**asked, "file": sound}


def test_openais_own_events_are_read_and_no_prompt_is_counted() -> None:
    assert transcriptions.read({"type": "transcript.text.delta", "delta": "a"}) == {
        "choices": [{"delta": {"content": "a"}}]
    }
    usage = {"type": "tokens", "input_tokens": 14, "output_tokens": 45, "total_tokens": 59}
    ended = transcriptions.read({"type": "transcript.text.done", "text": "ab", "usage": usage})
    assert ended == {"finish_reason": "stop", "usage": {"completion_tokens": 45}}
    whole = transcriptions.read({"text": "ab", "usage": {"type": "duration", "seconds": 3}})
    assert whole == {"choices": [{"text": "ab", "finish_reason": "stop"}], "usage": {}}
    failed = {"error": {"message": "boom"}}
    assert transcriptions.read(dict(failed)) == failed
