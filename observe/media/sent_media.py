"""Images, audio and videos of a workload, sent as drawn parts of a chat, of the size that makes their number of tokens.

A model whose tokens are squares of a fixed side (Qwen2-VL 28 pixels, Qwen3-VL 32) makes n tokens of a picture of n
squares; one whose tokens are stretches of sound (Qwen2-Audio 0.04 s) makes n of a sound of n stretches. Equal images of
a workload are equal pictures; all else is new: neither the server's cache of encoded parts nor its prefix cache knows
it. The parts stand behind the prompt's text: images, audio, then videos.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np
import orjson

from observe.media.drawn_images import image_url, video_url
from observe.media.drawn_sounds import LONGEST_S, wav
from traces import ConfigError, TraceError, image_lists, prompt_tokens

if TYPE_CHECKING:
    from traces import Trace

Modality: TypeAlias = Literal["image", "audio", "video"]
MODALITIES: Final[tuple[Modality, ...]] = ("image", "audio", "video")
_SENT_AS: Final[Mapping[Modality, str]] = {
    "image": "images, sent as drawn pictures",
    "audio": "audio, sent as drawn sound",
    "video": "videos, sent as drawn frames",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaDrawing:
    """How parts are drawn, None: sent as text.

    ``side``: pixels of the square that is a token of an image, or of two frames; ``audio_seconds``: of sound that are a
    token; ``video_frames``: of each video, needs ``side``; ``salt``: of the run's prompts.
    """

    side: int | None
    audio_seconds: float | None
    video_frames: int | None
    salt: int

    @property
    def drawn(self) -> tuple[Modality, ...]:
        """What is drawn."""
        has_side = self.side is not None
        how = (has_side, self.audio_seconds is not None, has_side and self.video_frames is not None)
        return tuple(name for name, is_drawn in zip(MODALITIES, how, strict=True) if is_drawn)


@dataclass(frozen=True, slots=True)
class SentPart:
    """One image, sound or video: as many tokens, and the key that equal ones share."""

    modality: Modality
    num_tokens: int
    key: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMedia:
    """The drawn parts of a plan's rows."""

    of_row: Mapping[int, tuple[SentPart, ...]]
    drawing: MediaDrawing

    def num_tokens(self, row: int) -> int:
        """Return the tokens of a row's parts."""
        return sum(part.num_tokens for part in self.of_row.get(row, ()))

    @property
    def notes(self) -> tuple[str, ...]:
        """How many requests have which parts; of none, that the load has none to draw."""
        if not self.of_row:
            asked = " or ".join(_SENT_AS[name].partition(",")[0] for name in self.drawing.drawn)
            return (f"the load has no {asked}: those of a specification or a trace are drawn",)
        counts = {name: len(self.rows(name)) for name in MODALITIES}
        return tuple(
            f"{number} requests have {_SENT_AS[name]} behind the text"
            for name, number in counts.items()
            if number
        )

    def rows(self, modality: Modality) -> list[int]:
        """Return the rows that have such a part."""
        return [row for row, parts in self.of_row.items() if any(each.modality == modality for each in parts)]

    def placed_images(self, row: int, prompt_tokens: int) -> str | None:
        """Return a row's images at their places in a prompt of so many tokens, None of none, or without room for them.

        The form is that of the column ``images``. The parts end the prompt.
        """
        place = prompt_tokens - self.num_tokens(row)
        images = [part for part in self.of_row.get(row, ()) if part.modality == "image"]
        if not images or place < 0:
            return None
        placed = []
        for part in images:
            placed.append(f"{place}:{part.num_tokens}:{part.key}")
            place += part.num_tokens
        return " ".join(placed)

    def prompt(self, row: int, messages: bytes) -> bytes:
        """Return a row's messages, JSON, with its parts behind the last one's text."""
        parts = self.of_row.get(row)
        if not parts:
            return messages
        said = orjson.loads(messages)
        text = {"type": "text", "text": said[-1]["content"]}
        said[-1]["content"] = [text, *(self._part(part) for part in parts)]
        return orjson.dumps(said)

    def _part(self, part: SentPart) -> dict[str, object]:
        """Return a part as OpenAI's chat API has it; of videos as vLLM has it."""
        drawing = self.drawing
        key = (drawing.salt, part.key)
        if part.modality == "audio":
            sound = wav(part.num_tokens * (drawing.audio_seconds or 0), key=key)
            data = base64.b64encode(sound).decode()
            return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
        side = drawing.side or 1
        if part.modality == "image":
            url = image_url(part.num_tokens, side=side, key=key)
        else:
            url = video_url(part.num_tokens, side=side, num_frames=drawing.video_frames or 1, key=key)
        kind = f"{part.modality}_url"
        return {"type": kind, kind: {"url": url}}


def media_to_send(trace: Trace, drawing: MediaDrawing, *, without: Collection[int]) -> SentMedia:
    """Return the drawn parts of each row but those of ``without``.

    A row that states the tokens of its images, audio or videos alone has one of them. Raises ConfigError without the
    library that draws pictures, TraceError for a sound that is too long.
    """
    if drawing.side is not None:
        try:
            import PIL  # noqa: F401  the extra is asked for before the run
        except ImportError as error:
            raise ConfigError(
                "--image-side: got no Pillow library, expected the extra: pip install 'vtwin[images]'"
            ) from error
    found: dict[int, list[SentPart]] = {}
    for modality in drawing.drawn:
        listed = _listed_images(trace) if modality == "image" else {}
        stated = trace.cells(f"{modality}_tokens")
        alone = np.flatnonzero(stated.is_known & (stated.values > 0)).tolist()
        first = 1 + max((part.key for parts in listed.values() for part in parts), default=-1)
        own = {row: (SentPart(modality, int(stated.values[row]), first + row),) for row in alone}
        for row, parts in (own | listed).items():
            found.setdefault(row, []).extend(parts)
    left_out = frozenset(without)
    kept = {row: tuple(found[row]) for row in sorted(found) if row not in left_out}
    _check_lengths(kept, drawing)
    return SentMedia(of_row=kept, drawing=drawing)


def _listed_images(trace: Trace) -> dict[int, tuple[SentPart, ...]]:
    """Return the images of each row of the column ``images``."""
    lists = image_lists(trace.cells("images"))
    if lists is None:
        return {}
    found: dict[int, tuple[SentPart, ...]] = {}
    ends = np.cumsum(lists.counts)
    for row in np.flatnonzero(lists.counts).tolist():
        own = slice(int(ends[row] - lists.counts[row]), int(ends[row]))
        sizes, keys = lists.num_tokens[own].tolist(), lists.content[own].tolist()
        found[row] = tuple(SentPart("image", size, key) for size, key in zip(sizes, keys, strict=True))
    return found


def _check_lengths(of_row: Mapping[int, tuple[SentPart, ...]], drawing: MediaDrawing) -> None:
    for row, parts in of_row.items():
        for part in parts:
            seconds = part.num_tokens * (drawing.audio_seconds or 0)
            if part.modality == "audio" and seconds > LONGEST_S:
                raise TraceError(
                    f"row {row + 1}, audio_tokens: got {part.num_tokens:,}, a sound of {seconds:,.0f} s, expected at "
                    f"most {LONGEST_S:,.0f} s (--audio-seconds: those of one token)"
                )


def with_sent_media(trace: Trace, media: SentMedia) -> Trace:
    """Return the trace with the images that are sent, at their places behind the text; without any that are not."""
    prompts = prompt_tokens(trace).tolist()
    cells = [
        media.placed_images(row, max(number, media.num_tokens(row) + 1)) for row, number in enumerate(prompts)
    ]
    return trace.with_columns(images=cells)
