"""Images, audio and videos of a chat: as many tokens as their size makes, the same for the same part; else refused."""

from __future__ import annotations

import base64
import io
import json
import wave

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from observe.media.sent_media import MODALITIES, MediaDrawing, SentMedia, SentPart
from replay.serve.chat_parts import UnreadablePartError, audio_tokens, image_tokens, part_reader, video_tokens
from replay.serve.protocol import Refusal, chat_tokens

SIDE = 28
SECONDS = 0.04


def part(width: int, height: int, *, colour: int = 0, kind: str = "PNG") -> dict[str, object]:
    file = io.BytesIO()
    Image.new("L", (width, height), colour).save(file, kind)
    url = f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def url_of(image: dict[str, object]) -> str:
    holder = image["image_url"]
    assert isinstance(holder, dict)
    return str(holder["url"])


def sound(num_samples: int, *, rate: int = 16_000, level: int = 0) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, rate, num_samples, "NONE", ""))
        out.writeframes(bytes([level, 0]) * num_samples)
    return file.getvalue()


def text(content: bytes) -> str:
    return base64.b64encode(content).decode()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize(("width", "height", "number"), [(280, 140, 50), (1, 1, 1), (41, 43, 2), (43, 43, 4)])
def test_an_image_has_a_token_a_square(width: int, height: int, number: int, kind: str) -> None:
    assert len(image_tokens(url_of(part(width, height, kind=kind)), side=SIDE)) == number


def test_equal_images_have_equal_tokens_and_others_have_none_in_common() -> None:
    one, again, other = (
        image_tokens(url_of(part(140, 140, colour=colour)), side=SIDE) for colour in (0, 0, 9)
    )
    assert one.tolist() == again.tolist()
    assert not np.isin(one, other).any()


def test_images_stand_where_they_are_in_the_message() -> None:
    picture = part(56, 28)
    content = [{"type": "text", "text": "what is "}, picture, {"type": "text", "text": "here"}]
    found = chat_tokens(
        {"messages": [{"role": "user", "content": content}]}, read_part=part_reader(SIDE, None)
    ).tolist()
    image = image_tokens(url_of(picture), side=SIDE).tolist()
    plain = chat_tokens({"messages": [{"role": "user", "content": "what is "}]}).tolist()
    place = found.index(image[0])
    assert found[place : place + 2] == image
    assert found[:place] == plain[:place]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, "not in the request"),
        ({"type": "image_url", "image_url": "data:image/png;base64,!!!"}, "not base64"),
        ({"type": "image_url", "image_url": "data:image/png;base64,aGVsbG8="}, "got no image"),
        ({"type": "image_url"}, "not in the request"),
        ({"type": "input_audio", "input_audio": {}}, "expected input_audio with data"),
        ({"type": "input_audio", "input_audio": {"data": "ü"}}, "a sound that is not base64"),
        ({"type": "input_audio", "input_audio": {"data": "aGVsbG8="}}, "got no sound"),
        ({"type": "audio_url", "audio_url": {"url": "https://example.com/a.wav"}}, "a sound that is not in"),
        (
            {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,aGVsbG8="}},
            "no data:video/jpeg URL",
        ),
        ({"type": "video_url", "video_url": {"url": "data:video/jpeg;base64,aGVsbG8="}}, "got no image"),
        ({"type": ["image_url"]}, "not text, images, videos or audio"),
        ({"type": "file", "file": {}}, "not text, images, videos or audio"),
    ],
)
def test_what_is_no_image_is_refused(bad: dict[str, object], said: str) -> None:
    with pytest.raises(Refusal, match=said):
        chat_tokens({"messages": [{"role": "user", "content": [bad]}]}, read_part=part_reader(SIDE, SECONDS))
    with pytest.raises(Refusal, match="not text, expected text"):
        chat_tokens({"messages": [{"role": "user", "content": [bad]}]})


@pytest.mark.parametrize(
    ("num_samples", "rate", "number"), [(16_000, 16_000, 25), (1, 16_000, 1), (44_100, 22_050, 50)]
)
def test_audio_has_a_token_for_so_many_seconds(num_samples: int, rate: int, number: int) -> None:
    content = sound(num_samples, rate=rate)
    assert len(audio_tokens(content, seconds=SECONDS)) == number
    read = part_reader(None, SECONDS)
    assert read is not None
    by_data = read({"type": "input_audio", "input_audio": {"data": text(content), "format": "wav"}})
    by_url = read({"type": "audio_url", "audio_url": {"url": f"data:audio/wav;base64,{text(content)}"}})
    assert by_data.tolist() == by_url.tolist() == audio_tokens(content, seconds=SECONDS).tolist()
    assert not np.isin(by_data, audio_tokens(sound(num_samples, rate=rate, level=1), seconds=SECONDS)).any()


def test_a_header_that_promises_hours_makes_no_more_tokens_than_the_file_has_samples() -> None:
    short = sound(10)
    promised = short.replace((20).to_bytes(4, "little"), (2**31).to_bytes(4, "little"))
    assert promised != short
    assert len(audio_tokens(promised, seconds=0.001)) == round(len(promised) / 2 / 16)


@given(places=st.dictionaries(st.integers(0, 63), st.integers(0, 255), max_size=6), length=st.integers(0, 64))
def test_a_broken_wav_is_refused_or_short(places: dict[int, int], length: int) -> None:
    content = bytearray(sound(10))
    for place, value in places.items():
        content[place] = value
    for cut in (content, content[:length]):
        try:
            found = audio_tokens(bytes(cut), seconds=0.001)
        except UnreadablePartError:
            continue
        assert 1 <= len(found) <= 1000 * len(cut)


def test_two_frames_of_a_video_are_one_picture() -> None:
    frames = [url_of(part(56, 28, colour=colour, kind="JPEG")).partition(",")[2] for colour in range(5)]
    for number, pictures in ((1, 1), (2, 1), (4, 2), (5, 3)):
        url = "data:video/jpeg;base64," + ",".join(frames[:number])
        assert len(video_tokens(url, side=SIDE)) == 2 * pictures
    other = url_of(part(28, 28, kind="JPEG")).partition(",")[2]
    with pytest.raises(ValueError, match="differ in size"):
        video_tokens(f"data:video/jpeg;base64,{frames[0]},{other}", side=SIDE)


def test_what_is_drawn_for_a_server_is_counted_as_it_was_meant() -> None:
    """The parts of ``observe`` in words of its own: they meet in the request alone."""
    read = part_reader(SIDE, SECONDS)
    assert read is not None
    drawing = MediaDrawing(side=SIDE, audio_seconds=SECONDS, video_frames=4, salt=1)
    for modality in MODALITIES:
        media = SentMedia(of_row={0: (SentPart(modality, 64, 0),)}, drawing=drawing)
        said = json.loads(media.prompt(0, b'[{"role":"user","content":"x"}]'))
        assert len(read(said[0]["content"][1])) == 64, modality
