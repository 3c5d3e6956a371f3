"""A fitted model on another server: each coefficient scaled by the part of a step that it stands for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calibrate.carried.carried_model import GpuPeak, carried_model, physics_ratios
from replay.model import find_gpu, peak_times, read_model_config
from sim import Blackbox, Extended, PeakTimes, Physics, Roofline
from traces import ConfigError

MODEL = "meta-llama/Llama-3.1-8B"
BLACKBOX = Blackbox(alpha0=9000, alpha1=1, beta0=6000, beta1=20, beta2=30)
EXTENDED = Extended(
    alpha0=9000, alpha1=1, beta0=900, beta1=20, beta2=30, beta3=0.04, beta4=0.0005, floor=5000, kappa=0.6, u0=0.5,
    concavity=0.3, tiles=((1, 1.0), (1024, 1.2)),
)  # fmt: skip


def place(gpu: str, *, tp: int = 1) -> GpuPeak:
    return GpuPeak(peak=peak(gpu, tp=tp), gpu=gpu)


def peak(gpu: str, *, tp: int = 1) -> PeakTimes:
    return peak_times(read_model_config(MODEL), find_gpu(gpu), tp=tp)


def test_the_same_server_changes_nothing() -> None:
    for model in (BLACKBOX, EXTENDED, Physics(peak=peak("H100"), weights=1.2)):
        tiles = getattr(model, "tiles", ())
        assert carried_model(model, place("H100"), place("H100"), tiles=tiles) == model


def test_reading_goes_by_bandwidth_and_products_by_compute() -> None:
    ratios = physics_ratios(peak("H100"), peak("H200"), has_floor=True)
    faster = find_gpu("H100").bandwidth_gb_per_s / find_gpu("H200").bandwidth_gb_per_s
    assert ratios["floor"] == pytest.approx(faster, rel=0.02)
    assert ratios["beta3"] == pytest.approx(faster, rel=0.02)
    assert ratios["beta1"] == pytest.approx(1, rel=0.05)
    assert ratios["beta4"] == pytest.approx(1, rel=0.02)
    assert ratios["beta0"] == pytest.approx(1, rel=0.02)
    halves = physics_ratios(peak("H100"), peak("H100", tp=2), has_floor=True)
    assert halves["floor"] == pytest.approx(0.5, rel=0.1)
    assert halves["beta4"] == pytest.approx(0.5, rel=0.02)
    assert halves["beta1"] > 0.5
    assert halves["beta0"] > 1


def test_of_a_straight_line_the_quiet_step_holds_the_weights() -> None:
    found = carried_model(BLACKBOX, place("H100"), place("A100-80"))
    assert isinstance(found, Blackbox)
    ratios = physics_ratios(peak("H100"), peak("A100-80"), has_floor=False)
    assert 1 < ratios["beta0"] < 2
    assert float(found.beta0) == pytest.approx(6000 * ratios["beta0"])
    assert float(found.beta1) == pytest.approx(20 * ratios["beta1"])
    assert (float(found.alpha0), float(found.alpha1)) == (9000, 1)


def test_tiles_are_the_new_server_s_and_a_slowdown_stays_where_both_have_one() -> None:
    new = ((1, 1.0), (512, 1.1))
    found = carried_model(EXTENDED, place("H100"), place("H200"), tiles=new)
    assert isinstance(found, Extended)
    assert (found.tiles, found.kappa, found.concavity) == (new, 0.6, 0.3)
    other = carried_model(EXTENDED, place("H100"), place("RTX4090"), tiles=new)
    assert isinstance(other, Extended)
    assert (other.kappa, other.u0) == (0.0, 0.0)
    plain = carried_model(replace(EXTENDED, tiles=()), place("H100"), place("H200"), tiles=new)
    assert isinstance(plain, Extended)
    assert plain.tiles == ()


def test_corrections_of_physics_stay_and_the_peak_is_the_new_one() -> None:
    old = Physics(peak=peak("H100"), weights=1.2, layer_us=30.0)
    assert carried_model(old, place("H100"), place("H200")) == replace(old, peak=peak("H200"))


def test_another_kind_of_model_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--from: got latency\.model roofline, expected blackbox"):
        carried_model(Roofline(peak=peak("H100")), place("H100"), place("H200"))
