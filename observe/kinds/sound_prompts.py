"""Prompts that are sounds: as long as their tokens say, each whole and another one."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from observe.media.drawn_sounds import LONGEST_S, SAMPLE_RATE, wav
from observe.plan.prompts import Blocks, Part, num_tokens
from traces import ConfigError, TraceError

if TYPE_CHECKING:
    from observe.settings import Settings
    from traces import Trace

_MODALITIES: Final = ("image_tokens", "audio_tokens", "video_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundPrompts:
    """Makes sounds of ``seconds`` a token. Prompts of equal parts are equal; one that begins alike is another."""

    salt: int
    seconds: float

    @property
    def source(self) -> str:
        """How lengths were made exact, in words, for the header."""
        return f"drawn sound, {self.seconds:g} s a token, {SAMPLE_RATE} samples a second"

    def render(self, parts: Sequence[Part]) -> bytes:
        """Return the WAV file of a prompt of these parts."""
        return wav(num_tokens(parts) * self.seconds, key=(self.salt, *(_key(parts))))

    def salted(self, salt: int) -> SoundPrompts:
        """Return the same kind of sounds, drawn otherwise."""
        return replace(self, salt=salt)


def _key(parts: Sequence[Part]) -> list[int]:
    key: list[int] = []
    for part in parts:
        key += (
            [*part.keys.tolist(), *part.lengths.tolist()]
            if isinstance(part, Blocks)
            else [part.kind, part.key, part.length]
        )
    return key


def seconds_of_token(settings: Settings) -> float:
    """Return the seconds of sound that are a token. Raises ConfigError where no option says it."""
    if settings.audio_seconds is None:
        raise ConfigError(
            f"--api {settings.api}: needs --audio-seconds, the seconds of sound that are a token of a prompt"
        )
    return settings.audio_seconds


def as_sounds(
    workload: Trace, settings: Settings, *, salt: int
) -> tuple[Trace, SoundPrompts, tuple[str, ...]]:
    """Return the workload whose prompts are sounds of these lengths, what draws them, and notes on what no sound has.

    Lengths are those that were sent: a server's count of a sound has the decoder's prompt in it. Raises TraceError for
    rounds that build on answers, and for a sound that is too long, ConfigError without the length of a token.
    """
    prompts = SoundPrompts(salt=salt, seconds=seconds_of_token(settings))
    if workload.cells("new_input_tokens").is_known.any():
        raise TraceError(
            f"--api {settings.api}: got rounds whose prompts build on answers, expected whole sounds"
        )
    tokens = workload.cells("prefix_length").values + workload.cells("input_tokens").values
    row = int(tokens.argmax())
    seconds = float(tokens[row]) * prompts.seconds
    if seconds > LONGEST_S:
        raise TraceError(
            f"row {row + 1}, input_tokens: got {tokens[row]:,}, a sound of {seconds:,.0f} s, expected at most "
            f"{LONGEST_S:,.0f} s (--audio-seconds: those of one token)"
        )
    return workload.without_columns("server_input_tokens", *_MODALITIES), prompts, _notes(workload)


def _notes(workload: Trace) -> tuple[str, ...]:
    shared = (workload.cells("prefix_length").values > 0) | workload.cells("prefix_hashes").is_known
    others = [workload.cells(name).values > 0 for name in _MODALITIES]
    counts = {
        "share prompts' beginnings: each is sent as a sound of its own": shared,
        "have image, audio or video tokens: sent as as many tokens of sound": np.logical_or.reduce(others),
    }
    return tuple(f"{number} requests {said}" for said, rows in counts.items() if (number := int(rows.sum())))
