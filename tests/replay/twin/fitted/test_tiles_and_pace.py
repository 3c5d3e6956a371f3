"""``latency.tiles`` and ``latency.pace`` of TWIN.yaml: read strictly, written back, and what a run does with them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import vtwin
from replay import load_config
from replay.capacity.capacity import capacity_of_draws
from replay.capacity.capacity_by_pace import with_pace
from replay.search.workload_draws import drawing_of, searchable
from replay.twin.config_write import dump_config
from replay.twin.defaults import DefaultsEntry, Provenance, read_defaults
from replay.twin.defaults_write import write_defaults_entry
from replay.twin.fitted.pace import Pace
from sim import Extended
from traces.errors import ConfigError
from traces.run_slo import parse_run_slo
from traces.units import four_digits, shown_time
from traces.workload import WorkloadOptions

TWIN = """\
engine: {max_num_seqs: 64, max_num_batched_tokens: 2048, num_gpu_blocks: 4000, max_model_len: 8192}
latency:
  model: extended
  coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 1000, beta1: 30, beta2: 20, floor: 9000}
  tiles: [[1, 1.0], [1024, 0.95], [1025, 1.2], [2048, 1.0]]
  fitted_range: {rate_per_s: [1, 4]}
  pace: {within: 0.01, beyond: 0.03}
"""
PAIRS = "[[1, 1.0], [1024, 0.95], [1025, 1.2], [2048, 1.0]]"
COSTS = {"beta0": 1000, "beta1": 30, "beta2": 20, "floor": 9000}
LOAD = ["--num-requests", "200", "--prompt-tokens", "1000", "--output-tokens", "50"]


def written(folder: Path, text: str = TWIN) -> Path:
    path = folder / "twin.yaml"
    path.write_text(text)
    return path


@dataclass(frozen=True, kw_only=True)
class Vtwin:
    """Runs a command in this process and returns its JSON document."""

    folder: Path
    output: pytest.CaptureFixture[str]

    def document(self, *asked: str, text: str = TWIN) -> dict[str, Any]:
        code = vtwin.main([*asked, "--config", str(written(self.folder, text)), "--json"])
        told = self.output.readouterr()
        assert code == 0, told.err
        return json.loads(told.out)  # type: ignore[no-any-return]


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Vtwin:
    return Vtwin(folder=tmp_path, output=capsys)


def test_both_are_read_and_written_back(tmp_path: Path) -> None:
    twin = load_config(written(tmp_path))
    assert isinstance(twin.latency, Extended)
    assert twin.latency.tiles == ((1, 1.0), (1024, 0.95), (1025, 1.2), (2048, 1.0))
    assert twin.pace == Pace(within=0.01, beyond=0.03)
    again = load_config(written(tmp_path, dump_config(twin)))
    assert again == twin
    assert again.pace == twin.pace


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (PAIRS, "[1, 2]", "latency.tiles: got 1, expected pairs [tokens, factor]"),
        (PAIRS, "[[1024, 1.0], [512, 1.0]]", "that do not rise"),
        (PAIRS, "[[0, 1.0]]", "that do not rise, expected them to, from 1 or more"),
        (PAIRS, "[[1, 0.0]]", "a factor of 0.0, expected one from 0.01 to 100"),
        (PAIRS, "[[1, 1.0e+300]]", "expected one from 0.01 to 100"),
        (PAIRS, f"[[1, {10**400}]]", "expected pairs [tokens, factor]"),
        (PAIRS, "[[1, .inf]]", "a factor of .inf"),
        (PAIRS, "[[70000, 1.0]]", "expected at most 65,536"),
        ("{within: 0.01, beyond: 0.03}", "{within: 0.01}", "latency.pace.beyond: got nothing"),
        ("{within: 0.01, beyond: 0.03}", "{within: -1, beyond: 0.03}", "latency.pace.within: got -1"),
        ("{within: 0.01, beyond: 0.03}", "{within: 0.9, beyond: 0.03}", "a fraction, 0 to 0.5"),
        ("{within: 0.01, beyond: 0.03}", "{within: 0.01, beyond: 0.03, of: 1}", "of"),
    ],
)
def test_what_is_none_is_refused_in_one_line(tmp_path: Path, key: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(written(tmp_path, TWIN.replace(key, value)))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_fitted_entry_on_record_keeps_its_tiles(tmp_path: Path) -> None:
    names = ("alpha0", "alpha1", "alpha2", "beta0", "beta1", "beta2", "floor")
    entry = DefaultsEntry(
        model="some/model",
        gpu="H100",
        tp=1,
        vllm_version="0.24.0",
        coefficients={name: Decimal(number) for number, name in enumerate(names, start=1)},
        provenance=Provenance(source="a test", date="2026-11-23", identification="good"),
        latency_model="extended",
        tiles=((1, 1.0), (1024, 0.95), (1025, 1.2)),
    )
    write_defaults_entry(tmp_path / "defaults.yaml", entry)
    (read,) = read_defaults(tmp_path / "defaults.yaml")
    latency = read.latency()
    assert isinstance(latency, Extended)
    assert latency.tiles == entry.tiles


@pytest.mark.parametrize(("rate", "delta", "is_beyond"), [("3", 0.01, False), ("12", 0.03, True)])
def test_a_run_is_told_with_what_it_comes_to_at_the_paces_left_open(
    command: Vtwin, rate: str, delta: float, is_beyond: bool
) -> None:
    told = command.document("run", "--rate", rate, *LOAD)
    band = told["pace_band"]
    assert (band["delta_frac"], band["is_beyond"]) == (delta, is_beyond)
    by_hand = {}
    for name, factor in (("faster", 1 - delta), ("slower", 1 + delta)):
        text = TWIN[: TWIN.index("  fitted_range")]
        for key, value in COSTS.items():
            text = text.replace(f"{key}: {value}", f"{key}: {value * factor}")
        by_hand[name] = command.document("run", "--rate", rate, *LOAD, text=text)
    for metric in ("ttft_us", "tpot_us", "e2e_us"):
        for statistic in ("mean", "p50", "p99"):
            ends = [by_hand[name][metric][statistic] for name in ("faster", "slower")]
            own = told[metric][statistic]
            assert band[metric][statistic] == pytest.approx([min(own, *ends), max(own, *ends)])


def test_a_run_s_page_has_the_band(command: Vtwin) -> None:
    told = command.document("run", "--rate", "12", *LOAD, "--report", str(command.folder / "page.html"))
    page = (command.folder / "page.html").read_text()
    low, high = told["pace_band"]["e2e_us"]["p99"]
    assert 'id="pace-band"' in page
    assert f"{four_digits(low / 1e3)} to {four_digits(high / 1e3)} ms" in page
    command.document(
        "run", "--rate", "12", *LOAD, "--report", str(command.folder / "other.html"),
        text=TWIN[: TWIN.index("  pace")],
    )  # fmt: skip
    assert 'id="pace-band"' not in (command.folder / "other.html").read_text()


def test_variants_side_by_side_each_have_theirs(command: Vtwin) -> None:
    asked = ["run", "--rate", "12", *LOAD, "--set", "engine.max_num_seqs=8,64"]
    variants = command.document(*asked)["variants"]
    for seats, each in zip((8, 64), variants, strict=True):
        alone = command.document("run", "--rate", "12", *LOAD, "--set", f"engine.max_num_seqs={seats}")
        assert each["pace_band"] == alone["pace_band"]
    assert vtwin.main([*asked, "--config", str(written(command.folder))]) == 0
    low, high = variants[0]["pace_band"]["ttft_us"]["p99"]
    shown = command.output.readouterr().out
    assert "pace band, TTFT" in shown
    assert f"{shown_time(low)} to {shown_time(high)}" in shown
    assert vtwin.main([*asked, "--config", str(written(command.folder, TWIN[: TWIN.index("  pace")]))]) == 0
    assert "pace band" not in command.output.readouterr().out


@pytest.mark.parametrize("model", ["model: blackbox", "model: auto"])
def test_tiles_beside_another_model_are_refused(tmp_path: Path, model: str) -> None:
    text = TWIN.replace("model: extended", model).replace(", floor: 9000", "")
    with pytest.raises(
        ConfigError, match=r"latency\.tiles: cannot be combined with model: .*, expected model: extended with"
    ):
        load_config(written(tmp_path, text))


def test_a_twin_that_does_not_say_its_pace_has_no_band(command: Vtwin) -> None:
    told = command.document("run", "--rate", "3", *LOAD, text=TWIN[: TWIN.index("  pace")])
    assert "pace_band" not in told


def test_the_interval_of_a_capacity_has_the_pace_in_it(tmp_path: Path) -> None:
    twin = load_config(written(tmp_path))
    limits = parse_run_slo("tpot_p99=20ms")
    load = WorkloadOptions(seed=3, num_requests=1000, prompt_tokens=1000, output_tokens=50)
    drawing = drawing_of(searchable(load), seeds=3)
    traces = drawing(4000, 3)
    plain = capacity_of_draws(traces, twin, limits, with_binding=False, with_curve=False)
    assert plain.rate_per_s is not None
    assert plain.low is not None
    assert plain.high is not None
    wide = with_pace(plain, traces, twin, limits, delta=0.03, drawing=drawing)
    assert wide.rate_per_s == plain.rate_per_s
    assert wide.pace_frac == 0.03
    slow = replace(twin, latency=_scaled(twin.latency, 1.03))
    at_slow = capacity_of_draws(traces, slow, limits, with_binding=False, with_curve=False).rate_per_s
    assert at_slow is not None
    assert wide.low is not None
    alone = math.sqrt(math.log(wide.rate_per_s / wide.low) ** 2 - math.log(plain.rate_per_s / plain.low) ** 2)
    assert alone == pytest.approx(math.log(plain.rate_per_s / at_slow), abs=0.015)


def _scaled(latency: object, factor: float) -> Extended:
    assert isinstance(latency, Extended)
    names = ("beta0", "beta1", "beta2", "floor")
    return replace(latency, **{name: float(getattr(latency, name)) * factor for name in names})  # type: ignore[arg-type]
