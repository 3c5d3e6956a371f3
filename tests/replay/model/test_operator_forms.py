"""The forms of operators: what their formula says, and what they are off on rows that were measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from replay.model import find_gpu
from replay.model.gpus import shipped_gpus
from replay.model.operator_forms import TERMS, Form, forms
from tests.studies.validation import layer_work
from tests.studies.validation.expert_loads import DRAWS, busiest
from tests.studies.validation.layer_operators import (
    FITTED,
    GPUS,
    OPERATORS,
    errors,
    errors_table,
    packed_rows,
)

PAGE = Path(__file__).parents[3] / "docs/explanation/latency-models.md"

SEEN_GPUS, UNSEEN_GPU = 20, 30
"""Goals: the median error of shapes that were held out, and of a GPU that was, in per cent."""
MOST: dict[str, tuple[int, int, int]] = {
    "gated delta, prompt": (6, 7, 6),
    "gated delta, decode": (6, 8, 8),
    "Kimi delta, prompt": (5, 5, 8),
    "Kimi delta, decode": (2, 12, 5),
    "short convolution, prompt": (8, 4, 5),
    "short convolution, decode": (2, 3, 4),
    "attention, prompt": (9, 11, 12),
    "attention, decode": (10, 9, 11),
    "windowed attention, prompt": (13, 13, 12),
    "windowed attention, decode": (15, 8, 16),
    "latent attention, prompt": (9, 10, 13),
    "latent attention, decode": (10, 11, 11),
    "absorbed projection": (8, 6, 14),
    "sparse latent attention, prompt": (12, 18, 16),
    "sparse latent attention, decode": (10, 7, 12),
    "block-sparse attention, prompt": (9, 17, 8),
    "block-sparse attention, decode": (7, 10, 8),
    "index scores": (14, 18, 15),
    "experts in bfloat16": (9, 10, 10),
    "experts in FP8": (11, 10, 13),
    "experts in MXFP4": (13, 8, 16),
    "experts in MXFP4, Marlin": (8, 8, 9),
    "vision encoder's attention": (8, 13, 9),
    "FP8 quantization, scale given": (8, 5, 11),
    "FP8 quantization, finding the scale": (7, 10, 11),
    "hyper-connections, before": (7, 15, 5),
    "hyper-connections, after": (8, 3, 3),
    "product in bfloat16": (11, 12, 7),
    "product in FP8": (9, 10, 10),
    "product in FP8 by block": (8, 4, 5),
}
"""What the median error is less than, in per cent: H100 and B200 on shapes not seen, and H200."""


def test_the_page_has_the_errors_of_the_rows_that_ship() -> None:
    assert errors_table() in PAGE.read_text()


def test_every_operator_has_a_form_with_its_source() -> None:
    assert set(forms()) == set(OPERATORS)
    assert all(form.source and form.formula for form in forms().values())


@pytest.mark.parametrize("name", OPERATORS)
def test_a_form_holds_on_what_it_has_not_seen(name: str) -> None:
    found = {
        gpu: 100 * np.median(errors(rows, each, gpu)) for each, gpu, rows in packed_rows() if each == name
    }
    bars = dict(zip(GPUS, MOST[name], strict=True))
    assert all(found[gpu] < bars[gpu] for gpu in GPUS), found
    assert all(bars[gpu] <= (SEEN_GPUS if gpu in FITTED else UNSEEN_GPU) for gpu in GPUS)


def test_constants_are_few() -> None:
    for form in forms().values():
        own = [each for each in ("launch_us", "p", "host_us", *TERMS) if getattr(form, each)]
        assert len(own) <= 8
        assert len(form.blackwell) <= 3


def test_blackwell_s_datacentre_gpus_have_constants_of_their_own() -> None:
    form = forms()["attention, decode"]
    for name in ("B200", "B300", "GB200", "GB300"):
        assert form.on(find_gpu(name)).launch_us == form.blackwell["launch_us"]
    for name in ("H100", "H200", "A100", "RTXPRO6000", "MI300X"):
        assert form.on(find_gpu(name)) == form


def test_every_gpu_of_the_table_says_how_many_multiprocessors_it_has() -> None:
    assert all(gpu.num_sms for gpu in shipped_gpus())
    assert find_gpu("B200").sms() == 148
    assert replace(find_gpu("B200"), num_sms=None).sms() == find_gpu("H100").sms()


def test_one_row_more_than_fills_the_multiprocessors_takes_another_wave() -> None:
    gpu, form = find_gpu("H100"), forms()["FP8 quantization, scale given"]
    rows = pd.DataFrame({"m": [131, 132, 133, 263, 264, 265], "k": [16384] * 6})
    took = np.diff(form.on(gpu).time_us(layer_work.quantize(rows, gpu)))
    assert took[[0, 3]].max() < 0.05 < took[[1, 4]].min()


def test_blackwell_ultra_has_twice_the_exponentials() -> None:
    rates = {name: find_gpu(name).exponentials_per_us() for name in ("H100", "B200", "B300")}
    assert rates["B300"] == 2 * rates["B200"]
    assert find_gpu("A100-80").exponentials_per_us() == pytest.approx(108 * 16 * 1410, rel=0.02)  # 1,410 MHz
    assert rates["H100"] == pytest.approx(132 * 16 * 1980, rel=0.02)  # a clock of 1,980 MHz


def naive_load(tokens: int, experts: int, top: int, ep: int, *, alpha: float) -> tuple[float, float, float]:
    """Return what ``busiest`` does, one draw and one expert at a time."""
    generator, found = np.random.default_rng(0), []
    low, high = (1.0, 0.8 * tokens) if tokens * top > experts else (0.01, 2.0)
    per = experts // ep
    for uniform in generator.random((DRAWS, experts)):
        parts = [
            (u * high ** (1 - alpha) + (1 - u) * low ** (1 - alpha)) ** (1 / (1 - alpha)) for u in uniform
        ]
        given = [round(part / sum(parts) * tokens * top) for part in parts]
        turn = sorted(range(experts), key=lambda each: (-given[each], each % per))
        lacking = tokens * top - sum(given)
        for number in range(abs(lacking)):
            given[turn[number % experts]] += 1 if lacking > 0 else -1
        gpus = [[max(0, each) for each in given[first : first + per]] for first in range(0, experts, per)]
        timed = max(gpus, key=sum)
        found.append(
            (sum(timed), sum(each > 0 for each in timed), sum(-(-each // 16) * 16 for each in timed))
        )
    return tuple(np.mean(found, axis=0).tolist())


@pytest.mark.parametrize(
    ("tokens", "experts", "top", "ep", "alpha"),
    [(1, 16, 4, 4, 1.2), (6, 64, 8, 8, 1.01), (300, 32, 4, 2, 1.2), (4096, 16, 1, 16, 1.01)],
)
def test_the_busiest_gpu_s_load_is_that_of_drawing_expert_by_expert(
    tokens: int, experts: int, top: int, ep: int, alpha: float
) -> None:
    load = busiest(tokens, experts, top, ep, alpha=alpha)
    assert (load.copies, load.touched, load.padded) == pytest.approx(
        naive_load(tokens, experts, top, ep, alpha=alpha), rel=0.01
    )
    assert load.copies >= tokens * top / ep
    if ep == 1:
        assert load.copies == tokens * top


def test_parts_add_up_or_hide_behind_the_longest() -> None:
    work = {"tensor": np.array([30.0, 1.0]), "moved": np.array([40.0, 1.0])}
    form = Form(name="", formula="", source="", launch_us=5.0, tensor=1.0, moved=1.0)
    assert replace(form, p=1.0).time_us(work).tolist() == pytest.approx([75.0, 7.0])
    assert replace(form, p=2.0).time_us(work)[0] == pytest.approx(55.0)
    assert replace(form, p=8.0).time_us(work)[0] == pytest.approx(45.0, rel=0.02)
    assert replace(form, host_us=60.0).time_us(work).min() == 60.0


@pytest.mark.parametrize("name", OPERATORS)
def test_more_of_anything_takes_no_less(name: str) -> None:
    form = forms()[name]
    one = {term: np.array([3.0]) for term in TERMS}
    for term in TERMS:
        assert form.time_us({**one, term: np.array([6.0])})[0] >= form.time_us(one)[0]
