"""Images, audio and videos of a workload as drawn parts: sizes, places, and what the server receives."""

from __future__ import annotations

import base64
import io
import sys
import wave
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from observe import Settings, observe_with, parse_endpoint
from observe.media.drawn_images import squares
from observe.media.drawn_sounds import SAMPLE_RATE
from observe.media.sent_media import MediaDrawing
from observe.plan.prompts import WordPrompts
from observe.plan.request_body import BodyShape
from observe.plan.send_plan import SendPlan, make_plan
from tests.observe.servers import Behaviour, observed, serving
from tests.observe.workloads import every, statuses, workload
from traces import ConfigError, Trace, TraceError
from traces.workload import Api

SIDE = 28
WORDS = WordPrompts(
    salt=1, words=("a", "b"), anchor="A", tokens_per_word=1.0, overhead=0, lead=0, chat=True, source="words"
)


def plan_of(
    trace: Trace,
    *,
    salt: int = 1,
    side: int | None = SIDE,
    audio: float | None = None,
    frames: int | None = None,
) -> SendPlan:
    """Return the plan of a chat whose images, audio and videos are drawn."""
    drawing = MediaDrawing(side=side, audio_seconds=audio, video_frames=frames, salt=salt)
    shape = BodyShape(api="chat", model="m")
    return make_plan(trace, prompts=WORDS, shape=shape, drawing=drawing)


def shown(plan: SendPlan, row: int) -> list[tuple[int, int, bytes]]:
    """Return width, height and bytes of each picture of a row."""
    image = pytest.importorskip("PIL.Image", reason="the extra images is not installed")
    content = orjson.loads(plan.take_body(row))["messages"][-1]["content"]
    found = []
    for part in content[1:] if isinstance(content, list) else ():
        data = base64.b64decode(part["image_url"]["url"].removeprefix("data:image/png;base64,"))
        with image.open(io.BytesIO(data)) as picture:
            picture.load()
            found.append((*picture.size, data))
    return found


def words_of(plan: SendPlan, row: int) -> int:
    """Return the words of a row's text."""
    content = orjson.loads(plan.take_body(row))["messages"][-1]["content"]
    text = content if isinstance(content, str) else content[0]["text"]
    return len(text.split()) - 1  # the anchor


@given(st.integers(1, 20_000))
def test_a_picture_has_nearly_as_many_squares_as_tokens(num_tokens: int) -> None:
    width, height = squares(num_tokens)
    assert abs(width * height - num_tokens) <= 2 + num_tokens // 100
    assert 1 <= height <= width <= 4 * height


def test_pictures_stand_behind_the_text_of_the_rest() -> None:
    trace = workload([0, 1, 2], input_tokens=100).with_columns(
        images=["0:64:x 70:16:y", "10:64:x", None], image_tokens=[80, 64, None]
    )
    plan = plan_of(trace)
    assert [shown(plan_of(trace), row) for row in (2,)] == [[]]
    first, second = shown(plan, 0), shown(plan_of(trace), 1)
    assert [(width, height) for width, height, _ in first] == [(8 * SIDE, 8 * SIDE), (4 * SIDE, 4 * SIDE)]
    assert first[0][2] == second[0][2]  # one content
    assert first[0][2] != first[1][2]
    assert [words_of(plan_of(trace), row) for row in range(3)] == [20, 36, 100]
    assert plan.trace.column("images").tolist()[:2] == ["20:64:0 84:16:1", "36:64:0"]
    assert "2 requests have images, sent as drawn pictures behind the text" in plan.notes


def test_another_run_has_other_pictures() -> None:
    trace = workload([0], input_tokens=100).with_columns(images=["0:64:x"], image_tokens=[64])
    assert shown(plan_of(trace, salt=1), 0) != shown(plan_of(trace, salt=2), 0)


def test_a_row_that_states_its_tokens_alone_has_one_picture() -> None:
    trace = workload([0, 1], input_tokens=100).with_columns(image_tokens=[36, 36])
    plan = plan_of(trace)
    first, second = shown(plan, 0), shown(plan, 1)
    assert [(len(first), first[0][:2])] == [(1, (6 * SIDE, 6 * SIDE))]
    assert first != second  # nothing says that they are the same


def test_without_a_side_images_are_text() -> None:
    trace = workload([0], input_tokens=100).with_columns(images=["0:64:x"], image_tokens=[64])
    plan = make_plan(trace, prompts=WORDS, shape=BodyShape(api="chat", model="m"))
    assert words_of(plan, 0) == 100
    assert not plan.trace.cells("images").is_known.any()
    assert "1 requests have image, audio or video tokens: sent as as many tokens of text" in plan.notes


async def test_a_trace_keeps_what_was_sent() -> None:
    trace = workload(every(1000, 2), input_tokens=100).with_columns(image_tokens=[64, None])
    async with serving(Behaviour(tokenize=True, part_tokens=64)) as server:
        settings = Settings(endpoint=parse_endpoint(server.url), api="chat", image_side=SIDE)
        seen = await observe_with(trace, settings)
        contents = [request.body["messages"][0]["content"] for request in server.requests]
    assert sorted(type(content) is list for content in contents) == [False, True]
    assert statuses(seen.trace) == ["ok", "ok"]
    assert seen.trace.column("images").tolist()[0] == "36:64:0"
    assert seen.trace.cells("images").is_known.tolist() == [True, False]


@pytest.mark.parametrize(
    ("counted", "placed"), [(60, "32:64:0"), (20, None), (64, "36:64:0"), (90, "36:64:0")]
)
async def test_a_server_that_counts_fewer_tokens_leaves_a_trace_that_can_be_read(
    counted: int, placed: str | None
) -> None:
    """The side is another, or words had fewer tokens than were measured."""
    trace = workload(every(1000, 1), input_tokens=100).with_columns(image_tokens=[64])
    async with serving(Behaviour(tokenize=True, part_tokens=counted)) as server:
        seen = await observed(server, trace, api="chat", image_side=SIDE)
    assert statuses(seen.trace) == ["ok"]
    assert seen.trace.column("server_input_tokens").tolist() == [36 + counted]
    assert seen.trace.column("images").tolist() == ([pd.NA] if placed is None else [placed])
    assert seen.trace.column("image_tokens").tolist() == [64]


@pytest.mark.parametrize("api", ["responses", "messages"])
async def test_an_image_is_sent_as_each_api_has_it(api: Api) -> None:
    trace = workload(every(1000, 2), input_tokens=100).with_columns(image_tokens=[64, None])
    async with serving(Behaviour(tokenize=True)) as server:
        seen = await observed(server, trace, api=api, image_side=SIDE)
        holder = "input" if api == "responses" else "messages"
        sent = [request.body[holder][0]["content"] for request in server.requests[-2:]]
    assert statuses(seen.trace) == ["ok", "ok"]
    (text, image), plain = sorted(sent, key=lambda content: isinstance(content, str))
    assert isinstance(plain, str)
    if api == "responses":
        assert (text["type"], image["type"], image["detail"]) == ("input_text", "input_image", "auto")
        kind, _, data = image["image_url"].partition(";base64,")
        assert kind == "data:image/png"
    else:
        assert (text["type"], image["type"]) == ("text", "image")
        source = image["source"]
        assert (source["type"], source["media_type"]) == ("base64", "image/png")
        data = source["data"]
    picture = pytest.importorskip("PIL.Image", reason="the extra images is not installed")
    with picture.open(io.BytesIO(base64.b64decode(data, validate=True))) as drawn:
        assert drawn.size == (8 * SIDE, 8 * SIDE)
    assert len(text["text"].split()) < 40 < len(plain.split())


def test_the_library_is_asked_for_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ConfigError, match=r"vtwin\[images\]"):
        plan_of(workload([0]).with_columns(image_tokens=[4]))


def parts_of(plan: SendPlan, row: int) -> list[dict[str, Any]]:
    """Return the parts behind a row's text."""
    content = orjson.loads(plan.take_body(row))["messages"][-1]["content"]
    return list(content[1:]) if isinstance(content, list) else []


def heard(part: dict[str, Any]) -> tuple[int, bytes]:
    """Return how many samples a sound has, and which, as vLLM reads it: base64 of a file of the named format."""
    assert part["type"] == "input_audio" and part["input_audio"]["format"] == "wav"
    with wave.open(io.BytesIO(base64.b64decode(part["input_audio"]["data"], validate=True))) as sound:
        assert (sound.getnchannels(), sound.getsampwidth(), sound.getframerate()) == (1, 2, SAMPLE_RATE)
        return sound.getnframes(), sound.readframes(sound.getnframes())


def seen_frames(part: dict[str, Any]) -> list[tuple[int, int]]:
    """Return the sizes of a video's frames, as vLLM 0.32 reads them (VideoMediaIO.load_base64)."""
    image = pytest.importorskip("PIL.Image", reason="the extra images is not installed")
    kind, _, data = part["video_url"]["url"].partition(";base64,")
    assert kind == "data:video/jpeg"
    sizes = []
    for frame in data.split(","):
        with image.open(io.BytesIO(base64.b64decode(frame, validate=True))) as picture:
            picture.load()
            assert picture.format == "JPEG"
            sizes.append(picture.size)
    return sizes


def test_audio_is_as_long_as_its_tokens_and_new_in_each_row_and_run() -> None:
    trace = workload([0, 1, 2], input_tokens=100).with_columns(audio_tokens=[25, 50, None])
    plan = plan_of(trace, side=None, audio=0.04)
    sounds = [[heard(part) for part in parts_of(plan, row)] for row in range(3)]
    assert [[length for length, _ in each] for each in sounds] == [[SAMPLE_RATE], [2 * SAMPLE_RATE], []]
    samples = np.frombuffer(sounds[0][0][1], "<i2").astype(float)
    assert samples.std() > 1000 and np.abs(samples).max() < 2**15 - 1
    assert sounds[1][0][1][: 2 * SAMPLE_RATE] != sounds[0][0][1]
    assert heard(parts_of(plan_of(trace, side=None, audio=0.04, salt=2), 0)[0]) != sounds[0][0]
    assert heard(parts_of(plan_of(trace, side=None, audio=0.04), 0)[0]) == sounds[0][0]
    assert [words_of(plan_of(trace, side=None, audio=0.04), row) for row in range(3)] == [75, 50, 100]
    assert [note for note in plan.notes if "audio" in note] == [
        "2 requests have audio, sent as drawn sound behind the text"
    ]


def test_a_row_has_images_then_audio_then_video_and_the_trace_their_places() -> None:
    trace = workload([0, 1], input_tokens=200).with_columns(
        images=["0:64:x", None], image_tokens=[64, None], audio_tokens=[20, 20], video_tokens=[32, 32]
    )
    plan = plan_of(trace, audio=0.1, frames=4)
    first = parts_of(plan, 0)
    assert [part["type"] for part in first] == ["image_url", "input_audio", "video_url"]
    assert heard(first[1])[0] == 2 * SAMPLE_RATE
    assert seen_frames(first[2]) == [(4 * SIDE, 4 * SIDE)] * 4  # two frames of 16 squares are 16 tokens
    assert len(set(first[2]["video_url"]["url"].split(","))) == 5  # no two frames alike
    assert plan.trace.column("images").tolist()[0] == f"{200 - 64 - 20 - 32}:64:0"
    assert words_of(plan_of(trace, audio=0.1, frames=4), 1) == 200 - 20 - 32
    assert not [note for note in plan.notes if "of text" in note]


def test_what_no_option_draws_is_sent_as_text() -> None:
    trace = workload([0, 1], input_tokens=200).with_columns(audio_tokens=[20, 20], video_tokens=[32, None])
    plan = plan_of(trace, side=None, audio=0.1, frames=4)  # frames have no side
    assert [len(parts_of(plan, row)) for row in range(2)] == [1, 1]
    assert words_of(plan_of(trace, side=None, audio=0.1), 0) == 180
    assert "1 requests have image, audio or video tokens: sent as as many tokens of text" in plan.notes


def test_a_sound_of_hours_is_refused_before_it_is_drawn() -> None:
    trace = workload([0], input_tokens=5000).with_columns(audio_tokens=[4000])
    with pytest.raises(
        TraceError, match=r"row 1, audio_tokens: got 4,000, a sound of 4,000 s, expected at most"
    ):
        plan_of(trace, side=None, audio=1.0)


async def test_audio_comes_to_the_server_and_the_trace_keeps_its_tokens() -> None:
    trace = workload(every(1000, 2), input_tokens=100).with_columns(audio_tokens=[10, None])
    async with serving(Behaviour(tokenize=True, part_tokens=10)) as server:
        seen = await observed(server, trace, api="chat", audio_seconds=0.04, processes=2)
        contents = [request.body["messages"][0]["content"] for request in server.requests]
    lengths = [heard(part)[0] for content in contents if isinstance(content, list) for part in content[1:]]
    assert statuses(seen.trace) == ["ok", "ok"]
    assert seen.trace.column("server_input_tokens").tolist() == [100, 100]
    assert lengths == [round(0.4 * SAMPLE_RATE)]
    assert seen.trace.cells("audio_tokens").values[seen.trace.cells("audio_tokens").is_known].tolist() == [10]
    assert not seen.trace.cells("images").is_known.any()


def test_a_load_that_has_nothing_to_draw_is_told() -> None:
    pytest.importorskip("PIL", reason="the extra images is not installed")
    plan = plan_of(workload([0, 1000]), audio=0.04)
    assert "the load has no images or audio: those of a specification or a trace are drawn" in plan.notes
