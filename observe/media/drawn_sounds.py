"""Drawn sounds: a tone in noise, as long as makes their number of tokens, in WAV files of the standard library."""

from __future__ import annotations

import io
import wave
from typing import Final

import numpy as np

SAMPLE_RATE: Final = 16_000
"""Samples per second, one channel of 16 bits: what the audio towers that vLLM serves resample to."""
LONGEST_S: Final = 3600.0
"""Seconds of a sound, some 150 MB in base64: no body is longer for it."""
_LOUDNESS: Final = 8000
_PITCH_HZ: Final = (100.0, 1000.0)


def wav(seconds: float, *, key: tuple[int, ...]) -> bytes:
    """Return a sound of so many seconds as a WAV file; ``key``: equal sounds share it."""
    number = max(round(seconds * SAMPLE_RATE), 1)
    draw = np.random.default_rng(key)
    noise = draw.integers(-_LOUDNESS, _LOUDNESS, number, dtype=np.int16)
    turns = np.arange(number) * (draw.uniform(*_PITCH_HZ) / SAMPLE_RATE)
    tone = (_LOUDNESS * np.sin(2 * np.pi * turns)).astype(np.int16)
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(SAMPLE_RATE)
        out.writeframes((noise + tone).astype("<i2").tobytes())
    return file.getvalue()
