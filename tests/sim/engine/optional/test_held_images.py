"""Images that a request holds stand in the order of a Python set of their numbers, whatever comes and goes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np

from sim import EngineConfig, Images
from sim.engine.dtypes import NEVER
from sim.engine.initial_state import first_state
from sim.engine.optional.encoder_cache import image_tables, with_images
from sim.engine.optional.held_images import add_held, discard_held, image_at, num_places
from sim.engine.state import State
from sim.latency import Blackbox
from tests.sim.strategies import requests_of

ROOT = Path(__file__).parents[4]
NUM_WALKS, NUM_STEPS = 12, 120


def one_request(num_images: int) -> State:
    """Return an engine with one request, of so many images of a token each."""
    requests = requests_of([{"prompt": num_images, "output": 1}])
    each = np.arange(num_images, dtype=np.int64)
    images = Images(
        starts=np.zeros(1, np.int64),
        counts=np.array([num_images]),
        position=each,
        num_tokens=np.ones(num_images, np.int64),
        content=each,
    )
    config = EngineConfig(max_num_seqs=1)
    state = first_state(config, Blackbox(beta0=1), np.zeros(0, np.int64), size=(9, 9), record="none")
    return with_images(state, image_tables(replace(requests, images=images)), config)


def walk(num_images: int, rng: Random) -> None:
    """Take images up and let go of them, and compare with the set after each; who holds none has a new set."""
    state, held = one_request(num_images), set[int]()
    for _ in range(NUM_STEPS):
        image = rng.randrange(num_images)
        if image in held:
            discard_held(state, 0, image)
            held.discard(image)
        else:
            add_held(state, 0, image)
            held.add(image)
        held = held or set()  # a set keeps the places that were left, a new one has none
        found = [image_at(state, 0, place) for place in range(num_places(state, 0))]
        assert [image for image in found if image != NEVER] == list(held), (num_images, held)


def main() -> None:
    """Walk, in plain Python; of up to eight images none comes back before all are gone, as in vLLM."""
    rng = Random(1)
    for _ in range(NUM_WALKS):
        walk(rng.choice([9, 10, 17, 40]), rng)
    for _ in range(NUM_WALKS):
        state, held = one_request(8), set[int]()
        for image in rng.sample(range(8), 8):
            add_held(state, 0, image)
            held.add(image)
            found = [image_at(state, 0, place) for place in range(num_places(state, 0))]
            assert [image for image in found if image != NEVER] == list(held)


def test_the_order_is_that_of_a_set() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim.engine.optional.test_held_images"],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


if __name__ == "__main__":
    main()
