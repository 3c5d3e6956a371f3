"""Images, audio and videos of a chat: how many tokens each is, by its size. The server looks at the size alone."""

from __future__ import annotations

import base64
import io
import wave
import zlib
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from replay.serve.image_squares import squares_of
from replay.serve.protocol import PartReader, Refusal
from replay.serve.tokens import NUM_IDS, Tokens
from replay.serve.unreadable_part import UnreadablePartError

_IDS_APART: Final = 1 << 20
"""Ids from one part's first to another's: so many tokens are its own."""
_FRAMES_OF_A_TOKEN: Final = 2


def part_reader(side: int | None, seconds: float | None) -> PartReader | None:
    """Return what reads the parts of chats that are no text, None where none are taken.

    A token is a square of ``side`` pixels, of an image or of two frames of a video; or ``seconds`` of sound.
    """
    by_type: dict[str, Callable[[object], Tokens]] = {}
    if side is not None:
        by_type["image_url"] = lambda said: picture_tokens(_url(said), side=side)
        by_type["video_url"] = lambda said: video_tokens(_url(said), side=side)
    if seconds is not None:
        by_type["audio_url"] = lambda said: audio_tokens(_data(_url(said), "a sound"), seconds=seconds)
        by_type["input_audio"] = lambda said: audio_tokens(_audio_data(said), seconds=seconds)
    return _read_by(by_type) if by_type else None


def _read_by(by_type: Mapping[str, Callable[[object], Tokens]]) -> PartReader:
    taken = {"image_url": "images", "video_url": "videos", "audio_url": "audio"}
    names = ["text", *(name for kind, name in taken.items() if kind in by_type)]
    what = f"{', '.join(names[:-1])} or {names[-1]}"

    def read(part: object) -> Tokens:
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(part, dict) or not isinstance(kind, str) or kind not in by_type:
            raise Refusal(f"messages: got content that is not {what}, expected {what}", param="messages")
        try:
            return by_type[kind](part.get(kind))
        except UnreadablePartError as fault:
            raise Refusal(f"messages: {fault}", param="messages") from fault

    return read


def picture_tokens(url: object, *, side: int) -> Tokens:
    """Return the tokens of an image: one a square of ``side`` pixels, alike for the same image.

    Raises UnreadablePartError for an image that is not in the request, or has no size that Pillow knows.
    """
    content = _data(url, "an image")
    return _tokens(squares_of(content, side), content)


def video_tokens(url: object, *, side: int) -> Tokens:
    """Return the tokens of a video of JPEG frames (``data:video/jpeg;base64,FRAME,FRAME…``, as vLLM takes them).

    Two frames are one picture, as in Qwen2-VL. Raises UnreadablePartError for another video, or frames that differ.
    """
    if not isinstance(url, str) or not url.startswith("data:video/jpeg;base64,"):
        raise UnreadablePartError("got a video that is no data:video/jpeg URL, expected frames in base64")
    frames = [_decoded(frame, "a frame") for frame in url.split(",")[1:]]
    number = {squares_of(frame, side) for frame in frames}
    if len(number) > 1:
        raise UnreadablePartError("got a video whose frames differ in size, expected one size")
    return _tokens(-(-len(frames) // _FRAMES_OF_A_TOKEN) * number.pop(), b"".join(frames))


def audio_tokens(content: bytes, *, seconds: float) -> Tokens:
    """Return the tokens of a WAV file: one for so many ``seconds`` of it. Raises UnreadablePartError for another."""
    return _tokens(max(round(sound_seconds(content) / seconds), 1), content)


def sound_seconds(content: bytes) -> float:
    """Return how long a WAV file is. Raises UnreadablePartError for another."""
    try:
        with wave.open(io.BytesIO(content)) as sound:
            most = len(content) // (
                sound.getsampwidth() * sound.getnchannels()
            )  # whatever its header promises
            return float(min(sound.getnframes(), most) / sound.getframerate())
    except (
        wave.Error,
        EOFError,
        ValueError,
        ZeroDivisionError,
        RuntimeError,
    ) as fault:  # a chunk too long: the last
        raise UnreadablePartError(f"got no sound ({type(fault).__name__}), expected a WAV file") from fault


def _tokens(number: int, content: bytes) -> Tokens:
    first = zlib.crc32(content) * _IDS_APART
    return (first + np.arange(number, dtype=np.int64)) % NUM_IDS


def _url(holder: object) -> object:
    return holder.get("url") if isinstance(holder, dict) else holder


def _data(url: object, what: str) -> bytes:
    if not isinstance(url, str) or not url.startswith("data:") or "," not in url:
        raise UnreadablePartError(f"got {what} that is not in the request, expected a data: URL")
    return _decoded(url.partition(",")[2], what)


def _audio_data(said: object) -> bytes:
    data = said.get("data") if isinstance(said, dict) else None
    if not isinstance(data, str):
        raise UnreadablePartError("got a sound that is not in the request, expected input_audio with data")
    return _decoded(data, "a sound")


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error is one; so is text beyond ASCII
        raise UnreadablePartError(f"got {what} that is not base64, expected a data: URL") from None
