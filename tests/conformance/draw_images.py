"""Random cases with images: a drawn case, whose prompts show some, and an encoder that makes few of them at a time.

Images of a group's prefix belong to the group, and those of a turn of a conversation to the turn: whoever shares the
tokens shows the images. Others are drawn from a few contents, so that requests share what the encoder made of them.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from tests.conformance.draw import Case, Row, length_of

NUMBERS = {"few": (0, 1, 1, 2, 3, 6), "many": (0, 3, 12, 20, 40)}
"""How many images a stretch of tokens has that belong together: in a prompt of many their order counts as well
(``sim/engine/optional/held_images.py``)."""

FIRST_TURN_ID = 3 * 10**12
TURN_STRIDE = 10**6
"""Of the ids of what is said in a turn (``draw.share_turns``)."""

Placed = tuple[int, int, int]
"""(position, tokens, content)."""


def placed(length: int, sizes: list[int], numbers: tuple[int, ...], rng: Random) -> list[Placed]:
    """Return images within ``length`` tokens, most of them one behind the other; a content has always one size."""
    images, position = [], 0
    number = rng.choice(numbers)
    for _ in range(number):
        position += rng.choice([0, 0, 1, rng.randint(0, max(1, length // (2 + number)))])
        content = rng.randrange(len(sizes))
        if position + sizes[content] > length:
            continue
        images.append((position, sizes[content], content))
        position += sizes[content]
    return images


def stretches_of(row: Row, number: int) -> list[tuple[str, int, int]]:
    """Return (name, start, length) of the stretches of a prompt whose images belong together."""
    length = length_of(row)
    if "prompt_token_ids" in row:
        ids = row["prompt_token_ids"]
        starts = [at for at, token in enumerate(ids) if token >= FIRST_TURN_ID and token % TURN_STRIDE == 0]
        stretches = []
        for at in starts:
            end = next((i for i in range(at, length) if ids[i] != ids[at] + i - at), length)
            stretches.append((f"turn {ids[at]}", at, end - at))
        return stretches
    shared = min(row.get("prefix_len") or 0, length) if "prefix_group" in row else 0
    return [(f"group {row.get('prefix_group')}", 0, shared), (f"row {number}", shared, length - shared)]


def with_images(case: Case, seed: int, index: int) -> Case:
    """Return the case with images; the encoder's budget and its cache are from one image's size to no limit."""
    rng = Random(f"{seed} {index} images")
    longest = max(length_of(row) for row in case.rows)
    kind = rng.choice(["few", "few", "few", "many"])
    largest = max(1, longest // rng.choice([2, 4, 8] if kind == "few" else [8, 16, 40]))
    sizes = [rng.randint(1, largest) for _ in range(rng.choice([2, 5, 5, 12, 40]))]
    rows, groups = [], {}
    for number, row in enumerate(case.rows):
        images = []
        for name, start, length in stretches_of(row, number):
            if name not in groups:
                most = 10**9 if name.startswith("group") else length
                groups[name] = placed(
                    min(most, longest), sizes, NUMBERS[kind], Random(f"{seed} {index} {name}")
                )
            images += [
                (start + position, tokens, content)
                for position, tokens, content in groups[name]
                if position + tokens <= length
            ]
        rows.append(row | {"images": images} if images else row)
    most = max((tokens for row in rows for _, tokens, _ in row.get("images", ())), default=0)
    changes: dict[str, Any] = {
        "max_num_encoder_input_tokens": rng.choice([1, 1, most + rng.randint(0, most), 3 * most, 10**6]),
        "encoder_cache_size": rng.choice([1, 1, most + rng.randint(0, most), 3 * most, 10**6]),
        "encoder_token_us": rng.choice([0, 1, 7]),
        "disable_chunked_mm_input": rng.random() < 0.3 and most <= case.settings["max_num_batched_tokens"],
    }
    changes |= {"encoder_step_us": rng.choice([0, 300]), "encoder_token_pair_us": rng.choice([0, 1])}
    if any(group.get("mode") == "align" for group in case.settings.get("groups", ())):
        changes["disable_chunked_mm_input"] = False  # vLLM refuses to start with both
    name = f"images_{seed}_{index:04d}" if case.name.startswith("random") else f"{case.name}_images"
    return replace(case, name=name, settings=case.settings | changes, rows=rows)
