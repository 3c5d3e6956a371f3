"""Contents of requests besides their lengths: images, audio, video, reasoning, grammars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from traces.tables.cells import Cells, text_cells
from traces.workload.basics import InvalidWorkload
from traces.workload.draw import draw_tokens, uniforms
from traces.workload.lengths import Separate, Shares
from traces.workload.model import Client, Modalities, Parts
from traces.workload.session_rounds import Drawn, context_tokens, grows

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Texts = npt.NDArray[np.object_]

MAX_PARTS: Final = 1000
"""Images (clips, videos) of one request; a distribution that draws more is taken for a mistake."""

MODALITIES: Final = ("text_tokens", "image_tokens", "audio_tokens", "video_tokens")
CONTENT_COLUMNS: Final = (*MODALITIES, "reason_ratio", "guided")


def draw_content(client: Client, *, seed: int, stream: str, n: int) -> dict[str, Floats]:
    """Return the first ``n`` requests' columns of ``CONTENT_COLUMNS`` that the client fills, as floats.

    Raises InvalidWorkload for more parts in a request than ``MAX_PARTS``.
    """
    columns: dict[str, Floats] = {}
    if client.modalities is not None:
        columns |= _modalities(client.modalities, client, seed=seed, stream=stream, n=n)
    if client.reason_percent is not None:
        percent = draw_tokens(client.reason_percent, seed=seed, stream=f"{stream}/reasoning", n=n)
        columns["reason_ratio"] = np.clip(percent / 100, 0.0, 1.0)
    if client.reason_shares is not None:
        drawn = _shares(client.reason_shares, seed=seed, stream=f"{stream}/reasoning", n=n)
        columns["reason_ratio"] = np.clip(drawn, 0.0, 1.0)
    if client.guided_frac > 0:
        drawn = uniforms(seed, f"{stream}/guided", n=n)[:, 0]
        columns["guided"] = (drawn < client.guided_frac).astype(np.float64)
    return columns


def _shares(shares: Shares, *, seed: int, stream: str, n: int) -> Floats:
    cumulative = np.cumsum(shares.weights)
    drawn = uniforms(seed, stream, n=n)[:, 0] * cumulative[-1]
    values: Floats = np.array(shares.values)[np.searchsorted(cumulative, drawn, side="right")]
    return values


def prompt_of(columns: dict[str, Floats]) -> Ints | None:
    """Return the prompts' lengths where they have several kinds of tokens, each at least 1; None elsewhere."""
    if MODALITIES[0] not in columns:
        return None
    total: Floats = np.sum([columns[name] for name in MODALITIES], axis=0)
    whole: Ints = np.maximum(total, 1).astype(np.int64)
    return whole


def _modalities(it: Modalities, client: Client, *, seed: int, stream: str, n: int) -> dict[str, Floats]:
    """Return the tokens of each kind; the text is the client's prompt if the modalities give none."""
    prompt = client.lengths.prompt if isinstance(client.lengths, Separate) else None
    text = it.text or prompt
    drawn = (
        np.zeros(n, np.int64) if text is None else draw_tokens(text, seed=seed, stream=f"{stream}/text", n=n)
    )
    columns = {"text_tokens": drawn.astype(np.float64)}
    for name, parts in (("image", it.image), ("audio", it.audio), ("video", it.video)):
        tokens: list[Ints] = []
        if parts is not None:
            tokens, _ = _parts(parts, seed=seed, stream=f"{stream}/{name}", n=n)
        columns[f"{name}_tokens"] = np.sum(tokens, axis=0, dtype=np.float64) if tokens else np.zeros(n)
    return columns


def image_sizes(client: Client, *, seed: int, stream: str, n: int) -> Texts:
    """Return the tokens of each image of the first ``n`` requests, as ``sizes_of_parts`` has them."""
    if client.modalities is None or client.modalities.image is None:
        return np.full(n, "", dtype=object)
    return sizes_of_parts(*_parts(client.modalities.image, seed=seed, stream=f"{stream}/image", n=n))


def _parts(parts: Parts, *, seed: int, stream: str, n: int) -> tuple[list[Ints], Ints]:
    """Return every part's tokens, and how many parts each request has; part j of request i is draw i of a stream."""
    count = draw_tokens(parts.count, seed=seed, stream=f"{stream} count", n=n)
    most = int(count.max(initial=0))
    if most > MAX_PARTS:
        raise InvalidWorkload(f"multimodal: got {most} parts in a request, expected at most {MAX_PARTS}")
    tokens = [
        draw_tokens(parts.tokens, seed=seed, stream=f"{stream} {place}", n=n) * (place < count)
        for place in range(most)
    ]
    return tokens, count


def sizes_of_parts(tokens: list[Ints], count: Ints) -> Texts:
    """Return each request's sizes as text, separated by spaces, "" where it has none; ``tokens``: of part 0, 1, …."""
    drawn = np.stack(tokens, axis=1).tolist() if tokens else [[] for _ in count]
    texts = [
        " ".join(map(str, filter(None, sizes[:number])))
        for sizes, number in zip(drawn, count.tolist(), strict=True)
    ]
    return np.array(texts, dtype=object)


def placed_images(clients: Sequence[Client], draws: Drawn, sizes: Texts) -> Cells | None:
    """Return the column ``images``, None if no request has any.

    ``sizes``: as of ``sizes_of_parts``. A round that continues the one before has its images as well.
    """
    if not sizes.any():
        return None
    prefix = np.array([client.prefix_length or 0 for client in clients])[draws.client]
    starts = (prefix + context_tokens(clients, draws) - draws.prompt_tokens).tolist()
    growing = np.array([grows(client) for client in clients])[draws.client].tolist()
    rounds, sessions = draws.round_index.tolist(), draws.session.tolist()
    texts: list[str | None] = []
    before = ""
    for row, start in enumerate(starts):
        if not growing[row]:
            texts.append(_placed(sizes[row], start, name="") or None)
            continue
        own = _placed(sizes[row], start, name=f"s{sessions[row]}.{rounds[row]}.")
        before = own if rounds[row] == 0 else f"{before} {own}".strip()
        texts.append(before or None)
    return text_cells(texts)


def _placed(sizes: str, start: int, *, name: str) -> str:
    """Return images one behind the other; ``name``: the prefix of their contents' names, before the number."""
    placed = []
    for number, size in enumerate(sizes.split()):
        placed.append(f"{start}:{size}:{name}{number}" if name else f"{start}:{size}")
        start += int(size)
    return " ".join(placed)
