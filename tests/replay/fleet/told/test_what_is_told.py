"""What a fleet's figures say of themselves: which limit broke, whose price, noise or error, and what a split saves."""

from __future__ import annotations

import datetime
import inspect
import json
import shlex
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import replay.fleet.check.fewest_engines
import vtwin
from replay.fleet.check.disagg_check import verify_handoff
from replay.fleet.check.pool import verify
from replay.fleet.check.slo_limits import keeps, limits_of
from replay.fleet.check.steady import RunLength
from replay.fleet.cli import fleet_app
from replay.fleet.inputs import OUTPUT_FRAC
from replay.fleet.inputs.fleet_workload import lengths_of_cdf
from replay.fleet.inputs.need import Need
from replay.fleet.inputs.profiles import from_profile, profile_yaml, read_source, shipped_profiles
from replay.fleet.plans.length_splits import splits_of
from replay.fleet.told.split_text import split_headline, split_parts
from replay.fleet.told.text import broken_text
from replay.model.gpus import find_gpu
from replay.model.prices import list_price_notes, list_prices
from replay.profiles.known_errors import known_errors
from sim.cluster.transfer.disaggregation_config import Disaggregation
from sim.fleet import Lengths
from sim.fleet.disaggregated import Transfer, disaggregated_at
from sim.fleet.sizing import Objective, pool_at
from sim.fleet.split import SAME, LengthSplit, Splits, marked
from traces.facts import terminal_lines

CDF = [[128, 0.1], [512, 0.4], [1024, 0.7], [2048, 0.9], [8192, 1.0]]
TWIN = """\
engine:
  {max_num_seqs: 32, max_num_batched_tokens: 2048, num_gpu_blocks: 3000, max_model_len: 8192, async_scheduling: false}
latency:
  model: blackbox
  coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 8000, beta1: 40, beta2: 60}
hardware: GPU
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cdf.json").write_text(json.dumps(CDF))
    (tmp_path / "h100.yaml").write_text(TWIN.replace("GPU", "H100"))
    (tmp_path / "a40.yaml").write_text(TWIN.replace("GPU", "A40"))
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    """Return what a fleet command prints on stdout and on stderr."""
    capsys.readouterr()
    assert vtwin.main(["fleet", *words, "--workload", "cdf.json"]) == code
    found = capsys.readouterr()
    return found.out, found.err


# -- which limit broke -----------------------------------------------------------------------------------------


def test_an_objective_is_kept_where_every_limit_of_it_is(folder: Path) -> None:
    assert folder
    source = from_profile("A100", shipped_profiles()["A100"], context=8192)
    lengths = lengths_of_cdf([(1000.0, 1.0)], output_frac=0.2, num_rows=50)
    seen = verify(source, lengths, 5.0, engines=1, service_s=2.0, seed=1, asked=RunLength(num_requests=1000))
    ttft, tpot = seen.ttft_p99.value, seen.tpot_p99.value
    for ttft_by, tpot_by, failed, broken in (
        (1.1, 1.1, 0.0, []),
        (0.9, 1.1, 0.0, ["TTFT p99"]),
        (1.1, 0.9, 0.0, ["TPOT p99"]),
        (1.1, 1.1, 0.3, ["failed"]),
        (0.9, 0.9, 0.3, ["TTFT p99", "TPOT p99", "failed"]),
    ):
        objective = Objective(ttft_p99_s=ttft * ttft_by, tpot_p99_s=tpot * tpot_by)
        found = changed(seen, failed_frac=failed)
        assert [each.name for each in limits_of(found, objective) if not each.is_kept] == broken
        assert keeps(found, objective) is (not broken)
        assert all(name in broken_text(found, objective) for name in broken if name != "failed")
    assert limits_of(seen, Objective(ttft_p99_s=1.0))[1].name == "failed"


@pytest.mark.usefixtures("folder")
def test_size_names_the_limit_that_broke_and_has_tpot_in_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    load = ("--rate", "30", "--slo", "ttft_p99=9s,tpot_p99=12ms", "--profile", "h100.yaml")
    words = ("size", *load, "--num-requests", "2000", "--report", "page.html")
    out, _ = told(capsys, *words)
    (changed,) = (line for line in out.splitlines() if "by formula break" in line)
    assert "TPOT p99" in changed
    assert "limit 12 ms" in changed
    assert "TTFT" not in changed
    assert any(line.startswith("  TPOT p99") and line.endswith("✓") for line in out.splitlines())
    page = Path("page.html").read_text()
    for text in (
        "TPOT p99, all, simulated",
        "TPOT within 12 ms",
        "break TPOT p99",
        "noise of the simulation",
    ):
        assert text in page
    found = json.loads(told(capsys, *words, "--json")[0])
    assert found["pools"][0]["broken_by_formula"] == ["TPOT p99"]


def test_a_formula_counts_what_a_request_takes_outside_of_the_engine(folder: Path) -> None:
    """At little load, in one pool and in two: there it asks one engine, then the other. A written profile, too."""
    alphas = "alpha0: 628000, alpha1: 100, alpha2: 5000"
    slow = (folder / "h100.yaml").read_text().replace("alpha0: 0, alpha1: 0, alpha2: 0", alphas)
    (folder / "slow.yaml").write_text(slow)
    lengths = Lengths(input_tokens=np.array([400.0, 1500.0]), output_tokens=np.array([40.0, 60.0]))
    twin = read_source("slow.yaml", lengths, context=2048)
    (folder / "profile.yaml").write_text(profile_yaml(twin))
    written = read_source("profile.yaml", lengths, context=2048)
    asked, free = RunLength(num_requests=1000), Transfer(alpha_prefill=1.0, alpha_decode=1.0, beta_ttft=1.0)
    for source in (twin, written):
        one = pool_at(source.profile, lengths, 0.05, context=2048, engines=1)
        seen = verify(source, lengths, 0.05, engines=1, service_s=one.service_s, seed=1, asked=asked)
        assert (one.ttft_p99_s, one.tpot_s) == pytest.approx(
            (seen.ttft_p99.value, seen.tpot_mean.value), rel=0.03
        )
    pair = (twin.profile, twin.profile)
    two = disaggregated_at(pair, lengths, 0.05, engines=(1, 1), context=2048, transfer=free)
    links = Disaggregation(kv_bandwidth_gbps=1e5, kv_base_latency_us=0, kv_bytes_per_token=1)
    both = verify_handoff(
        (twin, twin), lengths, 0.05, engines=(1, 1), transfer=links, stay_s=2.0, seed=1, asked=asked
    ).whole
    assert (two.ttft_p99_s, two.tpot_s) == pytest.approx(
        (both.ttft_p99.value, both.tpot_mean.value), rel=0.03
    )


@pytest.mark.parametrize(
    ("active", "rate", "within"), [(20, 13.5, 0.16), (50, 26.0, 0.24), (100, 38.0, 0.33)]
)
def test_a_formulas_first_token_is_near_the_simulations_and_later_by_what_is_handed_on(
    folder: Path, active: float, rate: float, within: float
) -> None:
    """Of an engine that schedules a step ahead; short by what prompts wait for each other's compute."""
    rng = np.random.default_rng(1)
    lengths = Lengths(
        input_tokens=np.ceil(rng.lognormal(5.5, 0.6, 2000)).clip(1, 4000),
        output_tokens=np.ceil(rng.lognormal(4.8, 0.6, 2000)).clip(1, 1000),
    )
    formula, seen = [], []
    for handed_on in (0, 125):
        text = TWIN.replace("hardware: GPU", "").replace(", async_scheduling: false", "")
        text = text.replace("max_num_seqs: 32", "max_num_seqs: 256").replace(
            "num_batched_tokens: 2048", "num_batched_tokens: 8192"
        )
        text = text.replace("num_gpu_blocks: 3000", "num_gpu_blocks: 20000").replace("beta1: 40", "beta1: 20")
        (folder / "many.yaml").write_text(text.replace("alpha2: 0", f"alpha2: 0, alpha3: {handed_on}"))
        source = read_source("many.yaml", lengths, context=8192)
        pool = pool_at(source.profile, lengths, rate, context=8192, engines=1)
        assert pool.active == pytest.approx(active, rel=0.05)
        run = verify(
            source,
            lengths,
            rate,
            engines=1,
            service_s=pool.service_s,
            seed=1,
            asked=RunLength(num_requests=8000),
        )
        formula.append(pool.ttft_p99_s)
        seen.append(run.ttft_p99.value)
    assert formula == pytest.approx(seen, rel=within)
    assert formula[1] - formula[0] == pytest.approx(seen[1] - seen[0], rel=0.25)


@pytest.mark.parametrize(
    ("held_out", "doubt"),
    [
        (
            "{ttft: 0.32, e2e: 0.24}",
            "do not trust this twin yet: its errors were TTFT 32%, E2E 24% per request",
        ),
        (
            "{ttft: 0.32, e2e: 0.04}",
            "do not trust this twin's TTFT: its errors were TTFT 32%, E2E 4% per request",
        ),
        ("{ttft: 0.1, e2e: 0.04}", ""),
    ],
)
def test_every_answer_of_a_twin_that_was_far_off_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str], held_out: str, doubt: str
) -> None:
    far = (folder / "h100.yaml").read_text().replace("hardware", f"  held_out: {held_out}\nhardware")
    (folder / "far.yaml").write_text(far)
    load = ["--rate", "1", "--num-requests", "100"]
    asked = ["--workload", "cdf.json", "--slo", "ttft_p99=3s", "--profile", "far.yaml", "--no-verify"]
    for words in (
        ["run", "--config", "far.yaml", *load],
        ["capacity", "--config", "far.yaml", "--num-requests", "200", "--slo", "ttft_p99=1s"],
        ["fleet", "size", "--rate", "2", *asked],
        ["fleet", "size", "--rate", "2,3", *asked],
        ["fleet", "size", "--layout", "disagg", "--rate", "2", *asked],
        ["fleet", "flex", "--rate", "2", *asked],
    ):
        capsys.readouterr()
        assert vtwin.main([*words, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        notes = " ".join([*found.get("notes", []), *found.get("warnings", [])])
        assert (doubt in notes) if doubt else "trust" not in notes, words
        assert vtwin.main(words) == 0
        shown = capsys.readouterr()
        assert (doubt in shown.out + shown.err) if doubt else "do not trust" not in shown.err, words


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("size --profile ''", "--profile: got '', expected A100, H100, MODEL@GPU:TP"),
        ("size --profile h10o", "; nearest: H100"),
        (
            "size --profile Qwen/Qwen3-14B@H10O:1",
            "--profile: got 'H10O', expected a GPU of the table (nearest: H100",
        ),
        (
            "profile --model Qwen/Qwen3-14B --gpu H10O",
            "--gpu: got 'H10O', expected a GPU of the table (nearest: H100",
        ),
    ],
)
def test_an_unknown_gpu_or_profile_is_one_line_with_the_nearest(
    capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    load = ["--rate", "2", "--slo", "ttft_p99=3s"] if words.startswith("size") else []
    err = told(capsys, *shlex.split(words), *load, code=2)[1]
    assert said in err.splitlines()[-1]
    assert "computed.yaml" not in err


@pytest.mark.usefixtures("folder")
def test_a_comparison_begins_with_the_cheapest_profile_of_each_rate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("size", "--rate", "5,20", "--slo", "ttft_p99=3s", "--profile", "h100.yaml,A100")
    first, _, *rows = told(capsys, *words)[0].splitlines()
    cells = [row.split() for row in rows[:4]]
    for rate in ("5", "20"):
        at = [row for row in cells if row[1] == rate]
        best = min(at, key=lambda row: float(row[8].replace(",", "")))
        assert f"{best[0]} at {rate} requests/s ({best[8]} USD a year on {best[2]} GPU" in first
    assert first.startswith("cheapest: ")
    without = ("size", "--rate", "5", "--slo", "ttft_p99=3s", "--profile", "h100.yaml,a40.yaml")
    assert told(capsys, *without)[0].startswith("fewest GPUs: h100 at 5 requests/s (")
    alone = told(capsys, *words[:-1], "h100.yaml")[0]
    assert alone.startswith("profile")


@pytest.mark.usefixtures("folder")
def test_a_fleet_that_cannot_be_says_what_the_last_try_broke(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay.fleet.check.fewest_engines, "MOST_TIMES", 2)
    load = ("--rate", "2", "--slo", "ttft_p99=3s,tpot_p99=8.03ms", "--profile", "h100.yaml")
    out, _ = told(capsys, "size", *load, "--num-requests", "1000", "--report", "p.html", code=1)
    assert out.startswith("no number that was tried meets the SLO in simulation; the last: TPOT p99")
    assert "the last tried" in out
    assert "recommended" not in out
    assert "The last that was tried: TPOT p99" in Path("p.html").read_text()


# -- noise and error -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_noise_is_called_noise_and_the_known_error_stands_beside_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    load = ("size", "--rate", "5", "--slo", "ttft_p99=3s", "--num-requests", "1000", "--profile")
    out, _ = told(capsys, *load, "Qwen/Qwen3-0.6B@H100:1")
    (row,) = (each for each in known_errors() if (each.points, each.model) == ("dense, H100", "roofline"))
    (error,) = (line for line in out.splitlines() if line.startswith("error"))
    assert row.text("ttft") in error
    assert row.text("tpot") in error
    assert any(line.startswith("noise") and "no error of the model" in line for line in out.splitlines())
    found = json.loads(told(capsys, *load, "Qwen/Qwen3-0.6B@H100:1", "--json")[0])["pools"][0]
    assert found["known_error"]["tpot"]["median"] == row.tpot_median / 100
    fitted = json.loads(told(capsys, *load, "h100.yaml", "--json")[0])["pools"][0]
    assert fitted["known_error"] is None
    assert "that of the twin's own fit" in told(capsys, *load, "h100.yaml")[0]
    alone = told(capsys, *load, "h100.yaml", "--no-verify")[0]
    assert not any(line.startswith("noise") for line in alone.splitlines())


# -- the same question -----------------------------------------------------------------------------------------


def test_every_command_takes_the_same_share_of_a_length_for_output() -> None:
    defaults = {
        str(each.name): inspect.signature(each.callback).parameters["output_frac"].default
        for each in fleet_app.registered_commands
        if each.callback is not None and "output_frac" in inspect.signature(each.callback).parameters
    }
    assert set(defaults) >= {"size", "flex", "reserve", "routers"}
    assert set(defaults.values()) == {OUTPUT_FRAC}


@pytest.mark.usefixtures("folder")
def test_costs_are_in_both_units_wherever_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    load = ("--slo", "ttft_p99=2s", "--profile", "A100")
    rate = ("--rate", "60")
    size = json.loads(told(capsys, "size", *load, *rate, "--no-verify", "--json")[0])
    split = json.loads(told(capsys, "size", "--layout", "split", *load, *rate, "--json")[0])
    whatif = json.loads(
        told(capsys, "size", "--compare", *load[:2], "--profile", "A100", "--rate", "60", "--json")[0]
    )
    disagg = json.loads(told(capsys, "size", "--layout", "disagg", *load, *rate, "--no-verify", "--json")[0])
    reserve = json.loads(
        told(capsys, "reserve", *load, "--diurnal", "60:60", "--burst-price", "3x", "--json")[0]
    )
    of_one_pool = [size, split["one_pool"], whatif["answers"][0], reserve["ways"]["all_reserved"]]
    assert {round(each["cost_per_hour"], 6) for each in of_one_pool} == {round(size["gpus"] * 2.21, 6)}
    for each in (*of_one_pool, split["splits"][0], disagg["fleets"][0], disagg["recommended"]):
        assert each["cost_per_year"] == pytest.approx(each["cost_per_hour"] * 8766)
    shown = f"{size['cost_per_hour']:,.2f}", f"{size['cost_per_year']:,.0f}"
    for words in (
        ("size", *load, *rate, "--no-verify"),
        ("size", "--layout", "split", *load, *rate),
        ("size", "--compare", *load[:2], "--profile", "A100", "--rate", "60"),
        ("reserve", *load, "--diurnal", "60:60", "--burst-price", "3x"),
    ):
        out, _ = told(capsys, *words)
        assert all(text in out for text in shown), words
    out, _ = told(capsys, "size", "--layout", "disagg", *load, *rate, "--no-verify")
    assert "cost/h" in out
    assert "cost/year" in out


# -- prices ----------------------------------------------------------------------------------------------------


def test_every_list_price_has_a_gpu_a_provider_a_page_and_a_day() -> None:
    for name, price in list_prices().items():
        assert find_gpu(name, where="here").name == name == price.gpu
        assert price.provider
        assert price.offer
        assert price.url.startswith("https://")
        assert datetime.date.fromisoformat(price.read) < datetime.date(2100, 1, 1)
        assert 0 < price.per_gpu_hour == price.per_hour / price.gpus
        assert price.read in price.source
    assert list_prices()["H100"].per_gpu_hour == pytest.approx(49.24 / 8)


def test_a_gpu_without_a_list_price_is_told_to_have_none() -> None:
    notes = list_price_notes(["H100", "A40", "H100"])
    assert "H100 6.155 USD" in notes[0]
    assert "2026-09-20, CoreWeave" in notes[0]
    assert notes[1].startswith("prices: no list price of A40 is known")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("profile", "price", "said"),
    [
        ("h100.yaml", 49.24 / 8, "list prices of 2026-09-20, CoreWeave"),
        ("a40.yaml", None, "no list price of A40"),
        ("A100", 2.21, "2.21 USD an hour"),
    ],
)
def test_without_prices_the_list_s_are_counted_and_told(
    capsys: pytest.CaptureFixture[str], profile: str, price: float | None, said: str
) -> None:
    words = ("size", "--rate", "5", "--slo", "ttft_p99=3s", "--no-verify", "--profile", profile, "--json")
    found: Any = json.loads(told(capsys, *words)[0])
    assert any(said in note for note in found["notes"])
    assert found["cost_per_hour"] == (None if price is None else pytest.approx(found["gpus"] * price))
    Path("own.yaml").write_text("H100: 3\nA40: 3\nA100-80: 3\n")
    own: Any = json.loads(told(capsys, *words, "--prices", "own.yaml")[0])
    assert own["cost_per_hour"] == pytest.approx(own["gpus"] * 3)
    assert not any("list price" in note for note in own["notes"])


# -- splits ----------------------------------------------------------------------------------------------------


def splits(cdf: list[tuple[float, float]], *, price: float = 2.21, rate: float = 60.0) -> Splits:
    profile = changed(shipped_profiles()["A100"], cost_per_hour=price)
    source = from_profile("A100", profile, context=65536)
    lengths: Lengths = lengths_of_cdf(cdf, output_frac=0.2, num_rows=400)
    return splits_of(
        [source],
        Need(lengths=lengths, rate_per_s=rate, objective=Objective(ttft_p99_s=2.0), context=65536),
        factors=(1.0,),
    )


MIXED = [(500.0, 0.3), (4000.0, 0.5), (30000.0, 1.0)]
"""Here one pool for all is on the front: faster than any split."""
LONG = [(500.0, 0.02), (4000.0, 0.5), (12000.0, 0.8), (60000.0, 1.0)]


@pytest.mark.parametrize("price", [2.21, 0.0])
def test_the_front_holds_what_neither_a_split_nor_one_pool_for_all_beats(price: float) -> None:
    found = splits(MIXED, price=price)
    assert found.is_one_best
    points = [(found.amount(each), each.ttft_p99_s, each.is_best) for each in found.splits]
    points.append((found.one_amount, found.one.ttft_p99_s, found.is_one_best))
    for amount, time, is_best in points:
        beaten = any(
            (other < amount and seconds <= time * (1 + SAME)) or (other == amount and seconds < time)
            for other, seconds, _ in points
        )
        assert is_best is not beaten
    assert any(each.is_best for each in found.splits)
    assert all(each.ttft_p99_s <= 2.0 for each in found.splits)
    dearer = [each for each in found.splits if found.amount(each) > found.one_amount]
    assert dearer, "one engine more than one pool for all, for nothing"
    assert not any(each.is_best and each.ttft_p99_s > 0.99 * found.one.ttft_p99_s for each in dearer)


def test_one_engine_more_than_one_pool_for_all_is_on_no_front() -> None:
    """Two pools of 1 + 504 engines are no faster than one of 504; 21 + 4 for 25 are, and 433 cost less."""
    found = splits(MIXED)
    pool = found.one

    def split(short: int, long: int, seconds: float) -> LengthSplit:
        sizes = [changed(pool, provisioned=number, ttft_p99_s=seconds) for number in (short, long)]
        return LengthSplit(
            threshold=9,
            factor=1.0,
            share=0.5,
            short=sizes[0],
            long=sizes[1],
            cost_per_hour=2.21 * (short + long),
        )

    one = changed(pool, provisioned=504, ttft_p99_s=0.99078)
    asked = (split(1, 504, 0.9907), split(1, 503, 1.0125), split(115, 318, 1.97), split(500, 4, 0.9))
    front = marked(changed(found, one=one, splits=asked))
    assert [each.is_best for each in front.splits] == [False, False, True, True]
    assert not front.is_one_best
    assert marked(changed(found, one=one, splits=asked[:3])).is_one_best


def test_what_a_split_saves_is_told_against_one_pool_for_all() -> None:
    found = splits(LONG)
    cheapest = min(found.splits, key=found.amount)
    saving = 1 - cheapest.cost_per_hour / (found.one.provisioned * 2.21)
    assert found.saving(cheapest) == pytest.approx(saving)
    assert saving > 0.02
    assert f"saves {saving:.1%} of the cost" in split_headline(found)
    rows = terminal_lines(split_parts(found), width=None)
    assert rows[3].split()[:2] == ["one", "pool"]
    assert rows[4].endswith(f"{saving:.1%}")
    alike = splits(LONG, rate=0.1)
    assert split_headline(alike).startswith("by formula, no split takes less than one pool for all")


def test_a_sweep_counts_list_prices_where_it_is_told_to(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = "config: h100.yaml\nworkloads: {a: {rate: 5, num_requests: 30}}\nprices: list\n"
    (folder / "grid.yaml").write_text(grid)
    assert vtwin.main(["sweep", "grid.yaml", "--jobs", "1", "--output", "t.parquet"]) == 0
    assert "list prices of 2026-09-20, CoreWeave" in capsys.readouterr().err
    assert pd.read_parquet("t.parquet")["price_per_hour"].tolist() == [pytest.approx(49.24 / 8)]
