"""Which images a request holds, in vLLM's order: that of a Python set of their numbers.

A request lets go of several images at once, and the first of them is the first to be evicted, so that the order counts
(vllm 0.32.0 v1/core/encoder_cache_manager.py: ``request_cached_ids``). Small integers stand in a set's table at their
own places, in ascending order, as long as the table is large enough for all of them: for eight and fewer. Beyond, this
is CPython's table (Objects/setobject.c: set_add_entry, set_table_resize), which
``tests/sim/engine/optional/test_held_images.py`` compares with the real one.
"""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.state import State
from sim.jit.compile import part, phase

SMALLEST_TABLE = 8
"""Places of a new set's table, and the most images of a request that need none."""

LINEAR_PROBES, PERTURB_SHIFT = 9, 5
EMPTY, GONE = 0, -1
"""A place that no image has had, and one that an image has left; else the image's number in its prompt, from 1."""


@part
def num_places(s: State, request: int) -> int:
    """Return how many places to look at for the images that a request holds, in order."""
    r = s.images_of[request]
    return r.count if r.set_start == NEVER else r.set_mask + 1


@part
def image_at(s: State, request: int, place: int) -> int:
    """Return which image that a request holds stands at a place, NEVER: none."""
    r = s.images_of[request]
    if r.set_start == NEVER:
        return r.first + place if s.images[r.first + place].is_held else NEVER
    number = s.image_sets[r.set_start + place]
    return r.first + number - 1 if number > 0 else NEVER


@phase
def free_place(s: State, request: int, number: int) -> int:
    """Return where in a table an image's number goes: the last place that was left, of those seen, or an empty one."""
    r = s.images_of[request]
    place, perturb, left = number & r.set_mask, number, NEVER
    while True:
        last = place + (LINEAR_PROBES if place + LINEAR_PROBES <= r.set_mask else 0)
        for at in range(place, last + 1):
            found = s.image_sets[r.set_start + at]
            if found == EMPTY:
                return at if left == NEVER else left
            if found == GONE:
                left = at
        perturb >>= PERTURB_SHIFT
        place = (place * 5 + 1 + perturb) & r.set_mask


@phase
def enlarge(s: State, request: int) -> None:
    """Give a table more than four times as many places as there are images in it, those that were left forgotten."""
    r = s.images_of[request]
    num_moved = 0
    for place in range(r.set_mask + 1):
        number = s.image_sets[r.set_start + place]
        if number > 0:
            s.moved_images[num_moved] = number - 1
            num_moved += 1
    size = SMALLEST_TABLE
    while size <= 4 * num_moved:
        size *= 2
    for place in range(max(size, r.set_mask + 1)):
        s.image_sets[r.set_start + place] = EMPTY
    r.set_mask, r.set_fill = size - 1, num_moved
    for i in range(num_moved):
        place = free_place(s, request, s.moved_images[i])
        s.image_sets[r.set_start + place] = s.moved_images[i] + 1


@part
def add_held(s: State, request: int, image: int) -> None:
    """Note that a request holds an image, which it did not."""
    r = s.images_of[request]
    s.images[image].is_held = 1
    r.num_held += 1
    if r.set_start == NEVER:
        return
    place = free_place(s, request, image - r.first)
    r.set_fill += s.image_sets[r.set_start + place] == EMPTY
    s.image_sets[r.set_start + place] = image - r.first + 1
    if r.set_fill * 5 >= r.set_mask * 3:
        enlarge(s, request)


@phase
def clear_table(s: State, request: int) -> None:
    """Begin a new set."""
    r = s.images_of[request]
    for place in range(r.set_mask + 1):
        s.image_sets[r.set_start + place] = EMPTY
    r.set_mask, r.set_fill = SMALLEST_TABLE - 1, 0


@part
def discard_held(s: State, request: int, image: int) -> None:
    """Note that a request holds an image no longer; a request that holds none begins anew."""
    r = s.images_of[request]
    s.images[image].is_held = 0
    r.num_held -= 1
    if r.set_start == NEVER:
        return
    if r.num_held == 0:
        clear_table(s, request)
        return
    place = 0
    while s.image_sets[r.set_start + place] != image - r.first + 1:
        place += 1
    s.image_sets[r.set_start + place] = GONE


def table_length(num_images: int) -> int:
    """Return how many places the table of a prompt of so many images may come to have; 0: it needs none."""
    if num_images <= SMALLEST_TABLE:
        return 0
    return 1 << (4 * num_images).bit_length()
