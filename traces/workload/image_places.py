"""Where the images of drawn prompts are: before the text that a round adds, one behind the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from traces.tables.cells import Cells, text_cells
from traces.workload.model import Client
from traces.workload.session_rounds import Drawn, context_tokens, grows

Ints = npt.NDArray[np.int64]
Texts = npt.NDArray[np.object_]


def sizes_of_parts(tokens: list[Ints], count: Ints) -> Texts:
    """Return each request's sizes as text, separated by spaces, "" where it has none; ``tokens``: of part 0, 1, …."""
    drawn = np.stack(tokens, axis=1).tolist() if tokens else [[] for _ in count]
    texts = [
        " ".join(map(str, filter(None, sizes[:number])))
        for sizes, number in zip(drawn, count.tolist(), strict=True)
    ]
    return np.array(texts, dtype=object)


def placed_images(clients: Sequence[Client], draws: Drawn, sizes: Texts) -> Cells | None:
    """Return the column ``images``, None where nobody shows any.

    ``sizes``: as ``sizes_of_parts`` has them. A round that goes on from the one before shows its images as well.
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
    """Return images one behind the other; ``name``: what their contents are called before their number."""
    placed = []
    for number, size in enumerate(sizes.split()):
        placed.append(f"{start}:{size}:{name}{number}" if name else f"{start}:{size}")
        start += int(size)
    return " ".join(placed)
