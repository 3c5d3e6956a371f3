"""What a fit is given and how it asks, by hand: which server it was, a trace made ready, coefficients, runs around."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from calibrate.fit.objective import many_runs
from calibrate.fit.objective.coefficients import coefficients_in, decimals_of
from calibrate.fit.objective.duty import duty
from calibrate.fit.objective.exposure import Timeline, _accumulated, exposure_columns, exposures, step_rate
from calibrate.fit.objective.fit_trace import FitTrace, fit_trace, head_of, in_order, observed_in_order
from calibrate.fit.objective.known_server import KnownServer, known_physics, known_server, known_tiles
from calibrate.fit.objective.many_runs import WORTH_A_THREAD, runs_around, simulate_many
from calibrate.fit.objective.objective import (
    NEVER_FINISHED,
    NOISE,
    NOISE_LIMITS,
    FitObjective,
    log_ratio,
    robust,
    robust_weight,
)
from calibrate.fit.objective.priors import (
    CONCAVITY,
    MEMORY,
    SLOWDOWN,
    THRESHOLD,
    USUAL_WEIGHT,
    WAY_IN,
    Prior,
    known_priors,
    of_this_server,
    with_priors,
)
from calibrate.fit.objective.repeated_run import Work
from calibrate.fit.objective.simulated_trace import SimulatedTrace
from replay import load_config
from replay.model import find_gpu, read_model_config
from replay.model.matmuls.tiles import tiles_of
from sim import Blackbox, Extended, Physics
from tests.calibrate.known_servers import ENGINE, SERVER
from tests.traces.made import small_trace
from traces import ClosedLoop, ConfigError, ServerInfo
from traces.statistics.bootstrap import Floats

NAN = math.nan
QWEN, LLAMA = "Qwen/Qwen3-8B", "Qwen/Qwen3-14B"

# -- which server it was -------------------------------------------------------------------------------------


def file_of(**own: Any) -> Any:  # noqa: ANN401 - of any type
    """Return a twin whose file names an H100 (of pools with others), a model and its peak on four GPUs."""
    known = {
        "gpus_of_pools": (("H100", 4), ("B200", 1)),
        "peaks": (SimpleNamespace(tp=4), SimpleNamespace(tp=1)),
        "shape": read_model_config(QWEN),
    }
    return replace(SERVER, **(known | own))


HEADER = ServerInfo(gpu="A100-80GB", model=LLAMA, tensor_parallel=2)


def test_options_stand_before_the_file_and_the_file_before_the_header() -> None:
    by_file = known_server(HEADER, file_of())
    assert by_file.shape == read_model_config(QWEN)
    assert by_file.gpu == find_gpu("H100")
    assert (by_file.gpu_name, by_file.tp, by_file.is_by_option, by_file.reason) == ("H100", 4, False, "")
    by_option = known_server(HEADER, file_of(), model_config=LLAMA, gpu="H200", tp=8)
    assert by_option.shape == read_model_config(LLAMA)
    assert (by_option.gpu_name, by_option.tp, by_option.is_by_option) == ("H200", 8, True)
    by_header = known_server(HEADER, SERVER)
    assert by_header.shape == read_model_config(LLAMA)
    assert (by_header.gpu_name, by_header.tp, by_header.is_by_option) == ("A100-80GB", 2, False)
    assert known_server(HEADER) == by_header
    assert known_server(ServerInfo(gpu="H100", model=QWEN)).tp == 1


@pytest.mark.parametrize("options", [{"gpu": "H200"}, {"model_config": LLAMA}])
def test_one_option_is_enough_for_another_server(options: dict[str, str]) -> None:
    found = known_server(ServerInfo(), file_of(), **options)  # type: ignore[arg-type] # no tp among them
    assert found.is_by_option
    assert found.shape == read_model_config(options.get("model_config", QWEN))
    assert found.gpu_name == options.get("gpu", "H100")


def test_pools_whose_peak_is_not_known_say_no_number_of_gpus() -> None:
    assert known_server(HEADER, file_of(peaks=(None,))).tp == 2
    assert known_server(ServerInfo(), file_of(peaks=())).tp == 1


def test_what_only_a_header_says_may_be_unknown_and_what_an_option_says_may_not() -> None:
    said = known_server(ServerInfo(gpu="H100", model="no/such-model", tensor_parallel=3))
    assert (said.shape, said.gpu, said.gpu_name, said.tp) == (None, None, "H100", 3)
    assert "no/such-model" in said.reason
    with pytest.raises(ConfigError):
        known_server(ServerInfo(gpu="H100"), model_config="no/such-model")
    missing = known_server(ServerInfo(gpu="H100", tensor_parallel=3))
    assert (missing.gpu_name, missing.tp) == ("H100", 3)
    assert missing.reason == "model not known (--model-config, --gpu)"
    assert known_server(ServerInfo(model=QWEN)).reason == "GPU not known (--model-config, --gpu)"


def physics_twin(folder: Path) -> Any:  # noqa: ANN401 - a configuration with another latency model than its file's
    path = folder / "twin.yaml"
    path.write_text(
        "engine: {num_gpu_blocks: 1000, max_model_len: 4096}\nhardware: {gpu: H100, pp: 2}\n"
        f"latency: {{model: physics, model_config: {QWEN}}}\n"
    )
    return replace(load_config(path), latency=SERVER.latency)


def test_physics_of_a_file_are_the_file_s_unless_an_option_names_another_server(tmp_path: Path) -> None:
    twin = physics_twin(tmp_path)
    own, _ = known_physics(known_server(ServerInfo(), twin), twin)
    assert own is not None
    assert own.peak.pp == 2
    other, _ = known_physics(known_server(ServerInfo(), twin, gpu="H200"), twin)
    assert other is not None
    assert other.peak.pp == 1
    plain = replace(twin, source=None)
    named, _ = known_physics(known_server(ServerInfo(), twin), plain)
    assert named is not None
    assert named.peak.pp == 1
    assert known_physics(KnownServer(), replace(twin, latency=own)) == (own, "")
    assert isinstance(own, Physics)


def test_physics_and_tiles_need_both_a_model_and_a_gpu() -> None:
    shape, gpu = read_model_config(QWEN), find_gpu("H100")
    for known in (KnownServer(shape=shape, reason="no GPU"), KnownServer(gpu=gpu, reason="no model")):
        assert known_physics(known, SERVER) == (None, known.reason)
        assert known_tiles(known, SERVER).reason == known.reason
    both = KnownServer(shape=shape, gpu=gpu, tp=2)
    assert known_tiles(both, SERVER) == tiles_of(shape, gpu, tp=2)
    plain = replace(SERVER, latency=Extended(beta0=1, floor=2))  # extended, without tiles of its own
    assert known_tiles(both, plain) == tiles_of(shape, gpu, tp=2)
    own = ((1, 1.0), (512, 1.0), (513, 1.5))
    with_own = replace(SERVER, latency=Extended(beta0=1, floor=2, tiles=own))
    assert known_tiles(both, with_own).factors == own


def test_a_gpu_s_kind_alone_says_how_it_slows_down() -> None:
    kind = of_this_server({"kappa": SLOWDOWN, "u0": THRESHOLD, "tau_s": MEMORY, "concavity": CONCAVITY})
    assert {each.weight for each in kind.values()} == {40.0}
    assert known_priors(KnownServer(gpu_name="nvidia-h100-80gb")) == kind
    assert known_priors(KnownServer(gpu_name="RTX 4090")) == {}
    shape, gpu = read_model_config(QWEN), find_gpu("H100")
    assert known_priors(KnownServer(gpu_name="H100", shape=shape)) == kind
    assert known_priors(KnownServer(gpu_name="H100", gpu=gpu)) == kind
    both = known_priors(KnownServer(gpu_name="H100", shape=shape, gpu=gpu))
    from replay.model import expected_coefficients

    for name, each in expected_coefficients(shape, gpu, tp=1).items():
        assert both[name].centre == each.value
        assert both[name].width == pytest.approx(each.value * each.relative_width)
    first, second = (Prior(centre=each, width=1.0, source="") for each in (1.0, 2.0))
    assert with_priors({"a": first, "b": first}, {"b": second}) == {"a": first, "b": second}


# -- coefficients --------------------------------------------------------------------------------------------


def test_coefficients_are_rounded_as_finely_as_they_are_small() -> None:
    assert [decimals_of(name) for name in ("beta3", "beta4", "beta0", "alpha1", "kappa")] == [12, 12, 6, 6, 6]
    assert coefficients_in(Blackbox()) == coefficients_in(Extended())[:7]
    assert coefficients_in(Extended())[-1] == "sigma"


def test_a_term_that_is_left_out_is_at_its_default() -> None:
    terms = dict.fromkeys(Extended.fit_terms, 0.5)
    whole = Extended(beta0=3, beta5=2.0, sigma=0.1, **terms)
    only = whole.with_terms(["kappa"])
    assert only == Extended(beta0=3, beta5=2.0, sigma=0.1, kappa=0.5)
    assert only.tau_s == 1.0
    assert Blackbox(beta0=3).with_terms([]) == Blackbox(beta0=3)


def asked_of(*traces: FitTrace, names: tuple[str, ...] = ("alpha0", "beta0"), **given: Any) -> FitObjective:  # noqa: ANN401
    options = {"scale": np.full(len(names), 10.0), "noise": np.ones(4), "base": Extended(beta1=7)} | given
    return FitObjective(traces=traces, engine=ENGINE, names=names, **options)


def test_a_coefficient_is_neither_negative_nor_above_the_most_it_may_be() -> None:
    asked = asked_of(names=("beta0", "beta3", "u0", "concavity"))
    model: Any = asked.latency(np.array([-5.0, 1.23456789012345e-7, 1.5, 0.95]))
    assert (model.beta0, model.beta3, model.u0, model.concavity) == (0.0, 1.23457e-7, 1.0, 0.9)
    assert model.beta1 == 7
    model = asked.latency(np.array([0.12345678, 0.0, 0.2, 0.3]))
    assert (model.beta0, model.beta3, model.u0, model.concavity) == (0.123457, 0.0, 0.2, 0.3)
    assert asked.most()[2:].tolist() == [1.0, 0.9]
    assert set(asked.held()) == {"alpha0", "alpha1", "alpha2", "alpha3", "beta1", "beta2"}
    assert asked.held()["beta1"] == 7.0
    part = asked_of(names=("beta0", "beta3", "u0"), scale=np.array([1.0, 2.0, 3.0])).subset(["u0", "beta0"])
    assert (part.names, part.scale.tolist()) == (("u0", "beta0"), [3.0, 1.0])


def test_the_widths_and_weights_of_priors() -> None:
    """Of three requests in two traces; alpha0 has the way in, beta0 a prior of its own, beta1 nothing."""
    one = ready()
    many = replace(one, observed_us=np.where([True, False, False], one.observed_us, NAN))
    priors = {"beta0": Prior(centre=100.0, width=50.0, source="")}
    asked = asked_of(one, many, names=("alpha0", "beta0", "beta1"), priors=priors)
    share = 1 / (one.num_used + many.num_used)
    assert (one.num_used, many.num_used) == (3, 1)
    assert asked.prior_centre().tolist() == [0.0, 100.0, 0.0]
    assert asked.prior_width().tolist() == [WAY_IN["alpha0"], 50.0, math.inf]
    theta = np.array([4000.0, 175.0, 9.0])
    due = [share / WAY_IN["alpha0"] ** 2, USUAL_WEIGHT * share / 50.0**2, 0.0]
    assert asked.prior_precision(theta) == pytest.approx(
        [100 * due[0], 100 * due[1] / (1 + 1.5**2), 0.0]  # a width and a half off
    )
    assert asked.prior_loss(theta) == pytest.approx(
        due[0] * 4000**2 + USUAL_WEIGHT * share * math.log1p(1.5**2)
    )
    assert asked.prior_loss(np.array([0.0, 100.0, 5.0])) == 0.0
    nobody = replace(one, observed_us=np.full((4, 3), NAN))
    assert asked_of(nobody, names=("alpha0",)).prior_loss(np.array([2e4])) == pytest.approx(1.0)


def test_robust_losses_and_their_weights() -> None:
    off = np.array([0.0, 0.75, -4 / 3])
    assert robust(off) == pytest.approx([0, 2 * 0.25, 2 * (5 / 3 - 1)])
    assert robust_weight(off) == pytest.approx([1, 0.8, 0.6])


def test_what_the_simulator_has_in_no_time_counts_as_a_microsecond() -> None:
    found = log_ratio(np.array([0.0, 0.5, 2.0, NAN]), np.array([1.0, 1.0, 1.0, 0.5]))
    assert found == pytest.approx([0, 0, math.log(2), math.log(10)])
    assert pytest.approx(math.log(10)) == NEVER_FINISHED


def run_with(latency_us: Floats, timeline: Timeline | None = None) -> SimulatedTrace:
    n = latency_us.shape[1]
    empty = Timeline(**{name: np.zeros(n) for name in Timeline.__dataclass_fields__})
    return SimulatedTrace(latency_us=latency_us, timeline=timeline or empty)


def test_the_noise_is_what_runs_leave_unexplained_within_its_limits() -> None:
    """By the median of |log ratio| times 1.4826: of 0, 0.1, 0.1 it is 0.148; 0.001 and 1 are beyond the limits."""
    one = ready()
    off = np.array([[0.0, 0.1, -0.1], [0.001] * 3, [1.0, -1.0, NAN], [NAN] * 3])
    trace = replace(one, observed_us=np.where(np.isnan(off), NAN, 1000.0))
    asked = asked_of(trace)
    found = asked.with_noise_of([run_with(np.where(np.isnan(off), 5.0, 1000 * np.exp(off)))])
    assert NOISE_LIMITS == (0.02, 0.30)
    assert found.noise == pytest.approx([0.14826, 0.02, 0.3, 1.0])
    assert NOISE[0] == 0.1


def test_residuals_are_in_units_of_each_metric_s_noise() -> None:
    trace = replace(ready(), observed_us=np.full((4, 3), 1000.0))
    asked = asked_of(trace, noise=np.array([0.1, 0.2, 0.5, 1.0]))
    (found,) = asked.residuals([run_with(np.full((4, 3), 1000 * math.e))])
    assert found[:, 0] == pytest.approx([10, 5, 2, 1])
    assert asked.loss([np.full((4, 3), 0.75)], np.zeros(2)) == pytest.approx(0.5)


def test_slopes_of_residuals_are_exposures_over_latency_and_noise() -> None:
    line = Timeline(
        joined=np.array([0.0]),
        prefill=np.array([0.0]),
        first=np.array([100.0]),
        last=np.array([500.0]),
        prefill_tokens=np.array([10.0]),
        output_tokens=np.array([5.0]),
    )
    trace = replace(
        ready(), requests=replace(ready().requests.take(np.array([0])), prompt_tokens=np.array([10]))
    )
    asked = asked_of(trace, names=("alpha0", "beta1"), noise=np.array([0.1, 0.2, 0.5, 1.0]))
    latency = np.array([[100.0], [500.0], [0.5], [NAN]])
    (found,) = asked.exposure_gradients([run_with(latency, line)])
    assert found.shape == (2, 4, 1)
    assert found[0, :3, 0] == pytest.approx([1 / (100 * 0.1), 1 / (500 * 0.2), 0])
    assert found[1, :3, 0] == pytest.approx([10 / (100 * 0.1), 10 / (500 * 0.2), 0])


# -- a trace made ready --------------------------------------------------------------------------------------


def ready(**columns: object) -> FitTrace:
    """Return the three of ``small_trace``: TTFT 400, 490, 600 and E2E 900, 490, 1000, sent at 0, 1010 and 2000."""
    return fit_trace(small_trace(**columns), SERVER, name="a")


def test_when_the_observed_requests_were_where() -> None:
    found = ready().observed_timeline
    assert found.joined.tolist() == [0, 1010, 2000]
    assert found.first.tolist() == [400, 1500, 2600]
    assert found.prefill.tolist() == [399, 1499, 2599]
    assert found.last.tolist() == [900, 1500, 3000]
    assert found.prefill_tokens.tolist() == [10, 20, 30]
    assert found.output_tokens.tolist() == [5, 1, 4]


def test_who_is_chosen_and_no_warm_up_enters_the_loss() -> None:
    observed = ready().observed_us
    assert observed[:3, 0].tolist() == [400, 900, 125]
    assert observed[:2, 1].tolist() == [490, 490]
    assert np.isnan(observed[2, 1])  # one token has no gap
    assert np.isnan(observed[3]).all()
    chosen = np.array([True, False, True])
    some = fit_trace(small_trace(phase=["warmup", "measured", "measured"]), SERVER, name="a", chosen=chosen)
    assert np.isfinite(some.observed_us[0]).tolist() == [False, False, True]
    assert (some.counts.tolist(), some.num_used) == ([1, 1, 1, 0], 1)
    left = some.without(np.array([False, False, True]))
    assert left.num_used == 0
    assert left.simulators is some.simulators


def test_completions_count_where_answers_pace_a_run_by_a_loop_or_by_a_cap() -> None:
    assert ready().done_rows.tolist() == []
    looped = small_trace().with_header(closed_loop=ClosedLoop(concurrency=2, think_time_us=5))
    by_loop = fit_trace(looped, SERVER, name="a")
    assert by_loop.closed_loop == (2, 5)
    by_cap = fit_trace(small_trace(), SERVER, name="a", max_concurrency=2)
    assert (by_cap.closed_loop, by_cap.max_concurrency) == (None, 2)
    for found in (by_loop, by_cap):
        assert found.done_rows.tolist() == [0, 1, 2]
        assert found.observed_us[3].tolist() == [900, 1500, 3000]  # a fifth of three is none
    warm = fit_trace(
        small_trace(phase=["warmup", "measured", "measured"]), SERVER, name="a", max_concurrency=2
    )
    assert warm.done_rows.tolist() == [1, 2]


def test_the_kth_of_the_requests_was_done_when_the_kth_is_done_here() -> None:
    done = np.array([70.0, NAN, 50.0, 90.0, 10.0])
    found = in_order(done, np.array([3, 0, 1]), start_us=5.0)
    assert found == pytest.approx([85, math.inf, NAN, 65, NAN], nan_ok=True)
    rows, times = observed_in_order(np.array([3.0, 1.0] + [5.0] * 8), np.arange(10.0, 20.0))
    assert rows.tolist() == list(range(10))
    assert np.isnan(times[:2]).all()
    assert times[2:].tolist() == [11, 12, 13, 14, 15, 16, 17, 18]


def test_the_head_of_a_trace_is_what_came_first_and_was_done_as_the_next_one_came() -> None:
    """The head leaves out the second, which comes last, at 1010: by then the first is done and the third not."""
    trace = replace(
        ready(),
        done_rows=np.array([2, 0, 1]),
        observed_us=np.tile([900.0, 1.0, 1000.0], (4, 1)),
        observed_timeline=replace(
            ready().observed_timeline, joined=np.array([0.0, 1010, 5]), last=np.array([1010.0, 1500, 1011])
        ),
    )
    trace = replace(trace, requests=replace(trace.requests, arrival_us=np.array([0, 1010, 5])))
    head = head_of(trace, 2)
    assert head.requests.arrival_us.tolist() == [0, 5]
    assert head.observed_us[0] == pytest.approx([900, NAN], nan_ok=True)
    assert head.done_rows.tolist() == [0]
    assert head.observed_timeline.joined.tolist() == [0, 5]
    assert head_of(trace, 1).done_rows.tolist() == []  # at 5 nothing is done
    assert head_of(trace, 3) is trace


# -- exposures -----------------------------------------------------------------------------------------------


def line_of(**columns: Sequence[float]) -> Timeline:
    usual = {
        "joined": [0.0, 0.0],
        "prefill": [0.0, 0.0],
        "first": [100.0, 100.0],
        "last": [300.0, 500.0],
        "prefill_tokens": [10.0, 10.0],
        "output_tokens": [3.0, 5.0],
    }
    return Timeline(**{name: np.array(values, float) for name, values in (usual | columns).items()})


@pytest.mark.parametrize("name", ["joined", "prefill", "first", "last"])
def test_a_request_without_one_of_its_times_is_not_finished(name: str) -> None:
    values = getattr(line_of(), name).tolist()
    line = line_of(**{name: [NAN, values[1]]})
    assert line.finished().tolist() == [False, True]
    times, rates = step_rate(line)
    assert (times.tolist(), rates.tolist()) == ([100, 500], [0.01, 0])


def test_who_gets_one_token_or_all_at_once_tells_no_rate_of_steps() -> None:
    for line in (line_of(output_tokens=[1, 5]), line_of(last=[100, 500])):
        times, rates = step_rate(line)
        assert (times.tolist(), rates.tolist()) == ([100, 500], [0.01, 0])
    two = step_rate(line_of(output_tokens=[2, 5], last=[300, 500]))
    assert two[0].tolist() == [100, 100, 300, 500]
    assert two[1][1:] == pytest.approx([0.0075, 0.01, 0])


def test_one_token_is_no_decode_token() -> None:
    line = line_of(output_tokens=[1.0, 0.0])
    seen = exposures(line, np.array([10.0, 10.0]))
    assert seen.decode_after.tolist() == seen.context_after.tolist() == [0, 0]


def test_an_amount_arrives_evenly_and_within_a_microsecond_at_least() -> None:
    def by(begin: list[float], end: list[float], amount: list[float]) -> list[list[float]]:
        return [each.tolist() for each in _accumulated(*map(np.array, (begin, end)), amount=np.array(amount))]

    assert by([5.0], [9.0], [8.0]) == [[5, 9], [0, 8]]
    assert by([5.0], [5.0], [8.0]) == [[5, 6], [0, 8]]
    assert by([0.0, 2.0], [4.0, 4.0], [4.0, 2.0]) == [[0, 2, 4, 4], [0, 2, 6, 6]]
    assert by([], [], []) == [[0], [0]]


def test_a_request_of_one_token_has_one_gap_s_share_of_nothing() -> None:
    """TPOT's share is per gap; of one token none is left, and no division by nothing."""
    found = exposure_columns(line_of(output_tokens=[1.0, 5.0]), np.array([10.0, 10.0]))
    assert found["beta0"][:, 0].tolist() == [1, 1, 0, 0]
    assert found["beta2"][2].tolist() == [
        pytest.approx(2.0),  # its 200 us held half of the other's four
        pytest.approx(1.0),
    ]


def test_a_trace_that_begins_late_keeps_a_gpu_as_busy() -> None:
    trace = ready()
    line = replace(
        trace.observed_timeline,
        joined=trace.observed_timeline.joined + 1e9,
        last=trace.observed_timeline.last + 1e9,
    )
    model = Extended(beta1=7.0)
    assert duty(model, replace(trace, observed_timeline=line)) == pytest.approx(7 * 60 / 3000)


# -- runs around a place -------------------------------------------------------------------------------------


def places(monkeypatch: pytest.MonkeyPatch, num: int, theta: list[float], **options: bool) -> Floats:
    """Return where a fit of so many requests simulates around a place."""
    seen: list[Any] = []
    monkeypatch.setattr(many_runs, "simulate_many", lambda _objective, points: seen.extend(points))
    asked: Any = SimpleNamespace(
        traces=[SimpleNamespace(num_used=num - num // 2), SimpleNamespace(num_used=num // 2)],
        most=lambda: np.array([math.inf, 1.0]),
    )
    runs_around(asked, np.array(theta), **options)
    return np.array(seen)


@pytest.mark.parametrize(
    ("num", "carefully", "pairs"),
    [
        (1000, False, 1),
        (999, False, 2),  # two thousand requests, by pairs
        (300, False, 4),
        (100, False, 4),
        (0, False, 4),
        (5000, False, 1),
        (1000, True, 3),
        (100, True, 12),
        (240, True, 10),
    ],
)
def test_of_few_requests_more_runs_are_averaged(
    num: int, carefully: bool, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = places(monkeypatch, num, [1000.0, 0.5], carefully=carefully)
    assert len(found) == 2 * pairs
    generator = np.random.Generator(np.random.Philox(key=[pairs, 79]))
    theta = np.array([1000.0, 0.5])
    drawn = generator.uniform(-0.01, 0.01, size=(pairs, 2))
    assert found == pytest.approx(theta + np.concatenate([drawn, -drawn]) * theta)


def test_no_place_is_above_the_most_that_a_coefficient_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    found = places(monkeypatch, 300, [1000.0, 1.0])
    assert found[:, 1].max() == 1.0
    assert 0.99 <= found[:, 1].min() < 1.0
    assert (places(monkeypatch, 300, [-5.0, 1.0])[:, 0] == 0).all()


def test_residuals_and_latencies_are_averaged_over_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [[run_with(np.full((4, 2), value))] for value in (1.0, math.e**2)]
    monkeypatch.setattr(many_runs, "runs_around", lambda _objective, _theta, **_options: runs)
    asked: Any = SimpleNamespace(
        residuals=lambda one: [each.latency_us - 1 for each in one],
        loss=lambda residuals, theta: (residuals[0][0, 0], theta),
    )
    due = (math.e**2 - 1) / 2
    assert many_runs.residuals_around(asked, np.zeros(1))[0][0, 0] == pytest.approx(due)
    assert many_runs.latencies_around(asked, np.zeros(1))[0][0, 0] == pytest.approx(math.e)
    assert many_runs.loss_around(asked, np.array([3.0])) == (pytest.approx(due), 3.0)


def test_threads_are_used_from_5000_requests_of_a_trace_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert WORTH_A_THREAD == 5000
    pools: list[int] = []

    class Pool:
        def __init__(self, max_workers: int) -> None:
            pools.append(max_workers)

        def __enter__(self) -> Any:  # noqa: ANN401
            return self

        def __exit__(self, *_: object) -> None:
            return

        def map(self, call: Any, values: Any) -> Any:  # noqa: ANN401
            return map(call, values)

    monkeypatch.setattr(many_runs, "ThreadPoolExecutor", Pool)
    for sizes, is_shared in (([10, 4999], False), ([10, 5000], True), ([5001, 10], True)):
        pools.clear()
        asked: Any = SimpleNamespace(
            traces=[SimpleNamespace(requests=range(size)) for size in sizes], simulate=lambda theta: theta * 2
        )
        assert simulate_many(asked, [1, 2, 3]) == [2, 4, 6]  # type: ignore[list-item,comparison-overlap] # numbers do
        assert pools == ([2] if is_shared else [])


def test_a_moved_arrival_is_rounded_to_whole_microseconds() -> None:
    work = Work.of(small_trace(), SERVER)
    generator: Any = SimpleNamespace(uniform=lambda low, high, *, size: np.linspace(low, high, size))
    assert work.moved(1001.0, generator).requests.arrival_us.tolist() == [0, 1010, 2500]
