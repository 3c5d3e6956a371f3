"""A workload specification is read strictly: every key means something, or is refused by name."""

import copy
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy import stats

from tests.docs.pages import blocks_of
from tests.docs.reference_pages.workload_spec_page import DRAWS
from traces.errors import ConfigError
from traces.header import SLOTarget
from traces.workload import load_spec, synth
from traces.workload.draw import weibull_shape
from traces.workload.lengths import (
    Constant,
    Empirical,
    Exponential,
    Gaussian,
    Lognormal,
    ParetoLognormal,
    Separate,
    TotalSplit,
    Uniform,
    Zipf,
)
from traces.workload.model import ActiveWindow, Arrival, Client, OpenLoop, UserLoop, Workload
from traces.workload.spec.sections import DISTRIBUTIONS
from traces.workload.spec.spec_read import parse_spec

PAGE = Path(__file__).parents[4] / "docs/reference/workload-spec.md"
BLIS_SAMPLE = Path(__file__).parents[1] / "data" / "workload_v2.yaml"
HOUR_US = 3_600_000_000

CONSTANT = {"type": "constant", "params": {"value": 10}}
CLIENT: dict[str, Any] = {"id": "a", "input_distribution": CONSTANT, "output_distribution": CONSTANT}
SPEC: dict[str, Any] = {"version": "2", "aggregate_rate": 5, "num_requests": 10, "clients": [CLIENT]}
COHORT = {**CLIENT, "id": "team", "population": 4}


def spec_with(path: str, value: object) -> dict[str, Any]:
    """The plain specification with one value put, or with None taken away, at a dotted path."""
    spec = copy.deepcopy(SPEC)
    *parents, last = path.split(".")
    place: Any = spec
    for name in parents:
        place = place[int(name)] if name.isdecimal() else place.setdefault(name, {})
    place[last] = value
    if value is None:
        del place[last]
    return spec


def parsed(spec: dict[str, Any]) -> Workload:
    return parse_spec(yaml.safe_dump(spec), source="load.yaml")


def refusal(content: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_spec(content, source="load.yaml")
    line = str(caught.value)
    assert "\n" not in line
    assert re.search(r" \(load\.yaml(:[1-9]\d*)?\)$", line)
    return line


def test_the_peers_specification_is_read_whole() -> None:
    workload = load_spec(BLIS_SAMPLE)
    a, b = workload.clients
    assert workload.load == OpenLoop(rate_per_s=40.0)
    assert (workload.num_requests, workload.duration_us, workload.seed) == (200, None, 5)
    assert a == Client(
        id="a",
        tenant_id="t1",
        slo_class="critical",
        rate_fraction=0.5,
        prefix_group="g1",
        prefix_length=512,
        lengths=Separate(
            prompt=Gaussian(mean=256, std_dev=64, min=32, max=512),
            output=Gaussian(mean=128, std_dev=32, min=16, max=256),
        ),
    )
    assert b.arrival == Arrival(process="gamma", cv=2.0)
    assert b.lengths == Separate(prompt=Exponential(mean=300), output=Lognormal(mu=4.5, sigma=0.5))
    assert (b.prefix_group, b.prefix_length, b.slo_class) == ("g2", 1024, "batch")


def test_the_peers_specification_is_drawn_as_it_says() -> None:
    workload = load_spec(BLIS_SAMPLE)
    trace = synth(workload, seed=5)
    rows = trace.requests
    assert len(rows) == 200
    assert set(rows["client_id"]) == {"a", "b"}
    assert (rows.loc[rows["client_id"] == "b", "prefix_length"] == 1024).all()
    assert rows.loc[rows["client_id"] == "a", "input_tokens"].between(32, 512).all()
    times = rows.loc[rows["client_id"] == "a", "arrival_time_us"].to_numpy(dtype=float)
    assert stats.kstest(np.diff(times), stats.expon(scale=1e6 / 20).cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("agregate_rate", 5, "agregate_rate: got an unknown key, did you mean aggregate_rate?"),
        ("zzz", 5, "zzz: got an unknown key, expected one of version, seed"),
        ("version", "3", 'version: got \'3\', expected "2" (or "1")'),
        ("category", "vision", "category: got 'vision', expected one of language, multimodal, reasoning"),
        ("aggregate_rate", None, "aggregate_rate: got none, expected requests per second"),
        ("aggregate_rate", -1, "aggregate_rate: got -1, expected requests per second >= 0"),
        ("aggregate_rate", "fast", "aggregate_rate: got 'fast', expected a number"),
        ("aggregate_rate", True, "aggregate_rate: got True, expected a number"),
        ("aggregate_rate", math.nan, "aggregate_rate: got nan, expected a number"),
        ("aggregate_rate", 0, "aggregate_rate: got 0, expected a rate > 0, or lifecycle.windows"),
        ("num_requests", 1.5, "num_requests: got 1.5, expected an integer"),
        ("num_requests", -1, "num_requests: got -1, expected an integer >= 0"),
        ("seed", "x", "seed: got 'x', expected an integer"),
        (
            "servegen_data",
            {"path": "x", "time_window": "morning"},
            "servegen_data.time_window: got 'morning', expected the key to be absent: not sup",
        ),
        (
            "inference_perf",
            {},
            "inference_perf.stages: got none, expected list",
        ),
        ("clients", [], "clients: got none, expected at least one client or cohort"),
        ("clients", {}, "clients: got a mapping, expected a list"),
        ("clients", [CLIENT, CLIENT], "clients: got two with the id 'a', expected each id once"),
        ("clients", [3], "clients[0]: got 3, expected keys id, tenant_id"),
        (
            "clients.0.rate_fration",
            1,
            "clients[0].rate_fration: got an unknown key, did you mean rate_fraction?",
        ),
        ("clients.0.rate_fraction", 0, "clients[0].rate_fraction: got 0, expected > 0"),
        (
            "clients.0.slo_class",
            "gold",
            "clients[0].slo_class: got 'gold', expected one of critical, standard",
        ),
        (
            "clients.0.streaming",
            "yes please",
            "clients[0].streaming: got 'yes please', expected true or false",
        ),
        ("clients.0.tenant_id", [1], "clients[0].tenant_id: got a list of 1, expected text"),
        (
            "clients.0.prefix_length",
            9,
            "clients[0].prefix_length: needs prefix_group",
        ),
        (
            "clients.0.network",
            {"rtt_ms": -1},
            "clients[0].network.rtt_ms: got -1, expected a finite number >= 0",
        ),
        (
            "clients.0.multimodal",
            {"image_distribution": CONSTANT},
            "clients[0].multimodal.image_distribution: needs image_count_distribution",
        ),
        ("clients.0.reasoning", {"multi_turn": {}}, "reasoning.multi_turn.max_rounds: got none"),
        (
            "clients.0.reasoning",
            {"reason_ratio_distribution": {}},
            "reason_ratio_distribution.type: got none, expected gaussian",
        ),
        ("clients.0.closed_loop", False, "closed_loop: needs reasoning.multi_turn"),
        ("clients.0.think_time_us", 5, "clients[0].think_time_us: needs concurrency"),
        ("clients.0.input_distribution", None, "clients[0].input_distribution: got none, expected a distr"),
        ("clients.0.output_distribution", None, "clients[0].output_distribution: got none, expected a distr"),
        (
            "clients.0.total_distribution",
            CONSTANT,
            "clients[0].total_distribution: cannot be combined with input_distr",
        ),
        (
            "clients.0.prefill_to_decode_ratio",
            2,
            "clients[0].prefill_to_decode_ratio: needs total_distribution",
        ),
        (
            "clients.0.input_distribution.type",
            "normal",
            "clients[0].input_distribution.type: got 'normal', expected one of gaussian, exponential",
        ),
        (
            "clients.0.input_distribution.file",
            "x",
            "clients[0].input_distribution.file: cannot be combined with type constant, expected type empirical",
        ),
        (
            "clients.0.input_distribution.params",
            {},
            "clients[0].input_distribution.params.value: got none, expected an integer",
        ),
        (
            "clients.0.input_distribution.params",
            5,
            "clients[0].input_distribution.params: got 5, expected a mapping",
        ),
        (
            "clients.0.input_distribution.params.value",
            0,
            "clients[0].input_distribution.params.value: got 0, expected an integer >= 1",
        ),
        (
            "clients.0.arrival",
            {"process": "pareto"},
            "clients[0].arrival.process: got 'pareto', expected one of poisson",
        ),
        ("clients.0.arrival", {}, "clients[0].arrival.process: got none, expected poisson / constant"),
        (
            "clients.0.arrival",
            {"process": "gamma"},
            "clients[0].arrival.cv: got none, expected one for process",
        ),
        (
            "clients.0.arrival",
            {"process": "gamma", "cv": 1, "shape": 1},
            "clients[0].arrival.cv: cannot be combined with shape",
        ),
        (
            "clients.0.arrival",
            {"process": "gamma", "cv": 99},
            "arrival.cv: got 99, expected a number in [0.01, 10]",
        ),
        (
            "clients.0.arrival",
            {"process": "weibull", "shape": 0.1},
            "clients[0].arrival.shape: got 0.1, expected a weibull shape whose coefficient of variation",
        ),
        (
            "clients.0.arrival",
            {"process": "gamma", "shape": 0},
            "arrival.shape: got 0, expected a number > 0",
        ),
        (
            "clients.0.arrival",
            {"process": "gamma", "cv": 1, "scale": 3},
            "clients[0].arrival.scale: needs shape (or give cv alone)",
        ),
        ("clients.0.arrival", {"process": "poisson", "cv": 2}, "arrival.cv: got 2.0, expected 1 or none for"),
        (
            "clients.0.arrival",
            {"process": "constant", "shape": 2},
            "arrival.shape: got 2.0, expected none for",
        ),
        (
            "clients.0.lifecycle",
            {"windows": [{"start_us": 5, "end_us": 5}]},
            "clients[0].lifecycle.windows[0].end_us: got 5, expected > start_us (5)",
        ),
        (
            "clients.0.lifecycle",
            {"windows": [{"start_us": 0}]},
            "clients[0].lifecycle.windows[0].end_us: got none, expected µs",
        ),
        (
            "clients.0.lifecycle",
            {"windows": [{"start_us": 0, "end_us": 9}, {"start_us": 5, "end_us": 20}]},
            "clients[0].windows: got [0, 9] and [5, 20], expected none to overlap",
        ),
        (
            "clients.0.lifecycle",
            {"windows": [{"start_us": 0, "end_us": 9, "trace_rate": 1}, {"start_us": 9, "end_us": 20}]},
            "trace_rate: got it in some windows only, expected it in every window of every client or in none",
        ),
        (
            "clients.0.lifecycle",
            {"windows": [{"start_us": 0, "end_us": 9, "trace_rate": math.inf}]},
            "clients[0].lifecycle.windows[0].trace_rate: got inf, expected a finite rate >= 0",
        ),
        (
            "cohorts",
            [{**COHORT, "population": 0}],
            "cohorts[0].population: got 0, expected an integer in [1, 100000]",
        ),
        (
            "cohorts",
            [{**COHORT, "prefix_sharing": "some"}],
            "cohorts[0].prefix_sharing: got 'some', expected one of",
        ),
        (
            "cohorts",
            [{**COHORT, "diurnal": {"peak_hour": 24, "peak_to_trough_ratio": 2}}],
            "cohorts[0].diurnal.peak_hour: got 24, expected an hour in [0, 23]",
        ),
        (
            "cohorts",
            [{**COHORT, "diurnal": {"peak_hour": 2, "peak_to_trough_ratio": 0.5}}],
            "cohorts[0].diurnal.peak_to_trough_ratio: got 0.5, expected a number",
        ),
        (
            "cohorts",
            [{**COHORT, "spike": {"start_time_us": 2, "duration_us": 0}}],
            "cohorts[0].spike.duration_us: got 0, expected µs > 0",
        ),
        (
            "cohorts",
            [{**COHORT, "drain": {"start_time_us": 2, "ramp_duration_us": 0}}],
            "cohorts[0].drain.ramp_duration_us: got 0, expected µs >= 10",
        ),
        (
            "cohorts",
            [
                {
                    **COHORT,
                    "spike": {"start_time_us": 2, "duration_us": 9},
                    "drain": {"start_time_us": 2, "ramp_duration_us": 99},
                }
            ],
            "cohorts[0].spike: cannot be combined with drain",
        ),
        (
            "goodput_slo_targets",
            {"batch": {"p99": 1}},
            "goodput_slo_targets.batch.p99: got an unknown key, expected",
        ),
        (
            "goodput_slo_targets",
            [1],
            "goodput_slo_targets: got a list of 1, expected targets by service class",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_where_it_stands(path: str, value: object, line: str) -> None:
    assert line in refusal(yaml.safe_dump(spec_with(path, value)))


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("", "workload: got None, expected keys version"),
        ("[1, 2]", "workload: got a list of 2, expected keys version"),
        (
            "a: [",
            "YAML: got text that does not parse (did not find expected node content), expected YAML (load.yaml:2)",
        ),
        ("seed: 1\nseed: 2", "seed: got the key twice, expected it once (load.yaml:2)"),
        ("clients:\n- id: a\n  id: b", "clients[0].id: got the key twice, expected it once (load.yaml:3)"),
        ("? [1]\n: 2", "YAML: got a list as a key, expected text (load.yaml:1)"),
    ],
)
def test_a_file_that_is_no_specification_is_refused(content: str, line: str) -> None:
    assert line in refusal(content)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"got nothing at this path, expected a workload specification \(.*none.yaml\)"
    ):
        load_spec(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ConfigError, match=r"expected a readable file: .* \(.*binary.yaml\)"):
        load_spec(tmp_path / "binary.yaml")
    with pytest.raises(ConfigError, match="expected a readable file"):
        load_spec(tmp_path)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (("gaussian", {"mean": 9.0, "std_dev": 1}), Gaussian(mean=9.0, std_dev=1.0)),
        (("exponential", {"mean": 9, "max": 20.0}), Exponential(mean=9.0, max=20)),
        (("lognormal", {"mu": 1, "sigma": 2, "min": 3}), Lognormal(mu=1.0, sigma=2.0, min=3)),
        (
            ("pareto_lognormal", {"alpha": 1.5, "xm": 50, "mu": 5, "sigma": 1, "mix_weight": 0.3}),
            ParetoLognormal(alpha=1.5, xm=50.0, mu=5.0, sigma=1.0, mix_weight=0.3),
        ),
        (("constant", {"value": 5.0}), Constant(value=5)),
        (("uniform", {"min": 5, "max": 9}), Uniform(min=5, max=9)),
        (("zipf", {"min": 5, "max": 9, "theta": 0.6}), Zipf(min=5, max=9, theta=0.6)),
        (("empirical", {"30": 0.5, 10: "1e-1"}), Empirical(tokens=(10, 30), weights=(0.1, 0.5))),
    ],
    ids=str,
)
def test_every_distribution_is_read(params: tuple[str, dict[Any, Any]], expected: object) -> None:
    distribution = {"type": params[0], "params": params[1]}
    lengths = parsed(spec_with("clients.0.output_distribution", distribution)).clients[0].lengths
    assert isinstance(lengths, Separate)
    assert lengths.output == expected


@pytest.mark.parametrize(
    ("params", "line"),
    [
        (("gaussian", {"mean": 9, "std_dev": -1}), "std_dev: got -1, expected >= 0"),
        (("gaussian", {"mean": 9, "std_dev": 1, "min": 10}), "mean: got 9, expected >= 10"),
        (
            ("gaussian", {"mean": 9, "std_dev": 1, "min": 5, "max": 4}),
            "max: got 4, expected an integer >= min (5)",
        ),
        (("gaussian", {"mean": 9, "std_dev": math.inf}), "std_dev: got inf, expected a finite number"),
        (("gaussian", {"mean": 9, "std_dev": 1, "min": 0}), "min: got 0, expected an integer >= 1"),
        (("gaussian", {"mean": 9, "sd": 1}), "sd: got an unknown key"),
        (("exponential", {"mean": 0}), "mean: got 0, expected > 0"),
        (("lognormal", {"mu": 1, "sigma": -1}), "sigma: got -1, expected >= 0"),
        (
            ("pareto_lognormal", {"alpha": 0, "xm": 1, "mu": 1, "sigma": 1, "mix_weight": 1}),
            "alpha: got 0, expected > 0",
        ),
        (
            ("pareto_lognormal", {"alpha": 1, "xm": 0, "mu": 1, "sigma": 1, "mix_weight": 1}),
            "xm: got 0, expected > 0",
        ),
        (
            ("pareto_lognormal", {"alpha": 1, "xm": 1, "mu": 1, "sigma": -1, "mix_weight": 1}),
            "sigma: got -1, expected",
        ),
        (
            ("pareto_lognormal", {"alpha": 1, "xm": 1, "mu": 1, "sigma": 1, "mix_weight": 2}),
            "mix_weight: got 2, expected a fraction in [0, 1]",
        ),
        (("uniform", {"min": 5, "max": 4}), "max: got 4, expected an integer >= min (5)"),
        (("zipf", {"min": 5, "max": 4, "theta": 1}), "max: got 4, expected an integer in [5, "),
        (("zipf", {"min": 5, "max": 6, "theta": -1}), "theta: got -1, expected >= 0"),
        (("empirical", {}), "params: got none, expected tokens: probability pairs"),
        (("empirical", {"ten": 1}), "ten: got 'ten', expected an integer"),
        (("empirical", {"0": 1}), "0: got it as a token count, expected an integer >= 1"),
        (("empirical", {"5": -1}), "5: got -1.0, expected a probability >= 0"),
        (("empirical", {"5": 0}), "got probabilities that are all 0"),
    ],
    ids=str,
)
def test_parameters_that_no_distribution_has_are_refused(
    params: tuple[str, dict[Any, Any]], line: str
) -> None:
    distribution = {"type": params[0], "params": params[1]}
    said = refusal(yaml.safe_dump(spec_with("clients.0.output_distribution", distribution)))
    assert said.startswith("clients[0].output_distribution.params")
    assert line in said


def test_scientific_notation_is_a_number_with_or_without_a_point() -> None:
    content = yaml.safe_dump(SPEC).replace("aggregate_rate: 5", "aggregate_rate: 1e2\nhorizon: 6e7")
    workload = parse_spec(content, source="load.yaml")
    assert (workload.load, workload.duration_us) == (OpenLoop(rate_per_s=100.0), 60_000_000)


def test_an_infinite_rate_needs_a_number_of_requests() -> None:
    assert parsed(spec_with("aggregate_rate", math.inf)).load == OpenLoop(rate_per_s=math.inf)
    spec = {**spec_with("aggregate_rate", math.inf), "num_requests": 0, "horizon": 5}
    assert "rate: got inf with a duration alone, expected num_requests" in refusal(yaml.safe_dump(spec))


def test_neither_number_nor_horizon_means_a_hundred() -> None:
    assert parsed(spec_with("num_requests", None)).num_requests == 100
    assert parsed({**SPEC, "num_requests": 0, "horizon": 0}).num_requests == 100
    timed = parsed({**spec_with("num_requests", None), "horizon": 7})
    assert (timed.num_requests, timed.duration_us) == (None, 7)


def test_the_names_of_version_1_are_understood() -> None:
    workload = parsed({**spec_with("clients.0.slo_class", "realtime"), "version": 1})
    assert workload.clients[0].slo_class == "critical"


def test_a_prefix_group_has_the_length_of_its_first_client_that_says_one() -> None:
    names = ({"id": "a"}, {"id": "b", "prefix_length": 70}, {"id": "c", "prefix_length": 90}, {"id": "d"})
    clients = [{**CLIENT, "prefix_group": "d" if name == {"id": "d"} else "g", **name} for name in names]
    lengths = [client.prefix_length for client in parsed({**SPEC, "clients": clients}).clients]
    assert lengths == [70, 70, 90, 50]


def test_one_client_with_concurrency_closes_the_loop() -> None:
    spec = spec_with("clients.0.concurrency", 3)
    spec["clients"][0]["think_time_us"] = 500
    del spec["aggregate_rate"]
    assert parsed(spec).load == UserLoop(concurrency=3, think_time_us=500)
    assert "aggregate_rate: cannot be combined with clients[0].concurrency" in refusal(
        yaml.safe_dump({**spec, "aggregate_rate": 1})
    )
    both = {**spec, "clients": [spec["clients"][0], {**CLIENT, "id": "b"}]}
    assert "clients[0].concurrency: cannot be combined with other clients" in refusal(yaml.safe_dump(both))
    timed = {**spec, "horizon": 5}
    assert "duration: got one in a closed loop, expected num_requests" in refusal(yaml.safe_dump(timed))
    for name, value in (("rate_fraction", 1), ("arrival", {"process": "poisson"}), ("lifecycle", {})):
        clash = {**spec, "clients": [{**spec["clients"][0], name: value}]}
        assert f"clients[0].{name}: cannot be combined with concurrency" in refusal(yaml.safe_dump(clash))


def test_a_total_may_stand_for_prompt_and_output() -> None:
    client = {"id": "a", "total_distribution": CONSTANT, "prefill_to_decode_ratio": 4}
    spec = {**SPEC, "clients": [client]}
    expected = TotalSplit(total=Constant(value=10), prefill_to_decode_ratio=4.0)
    assert parsed(spec).clients[0].lengths == expected
    assert "total_distribution: needs prefill_to_decode_ratio" in refusal(
        yaml.safe_dump({**SPEC, "clients": [{"total_distribution": CONSTANT}]})
    )
    assert "prefill_to_decode_ratio: needs total_distribution" in refusal(
        yaml.safe_dump({**SPEC, "clients": [{"prefill_to_decode_ratio": 1}]})
    )
    assert "prefill_to_decode_ratio: got -1, expected > 0" in refusal(
        yaml.safe_dump({**SPEC, "clients": [{**client, "prefill_to_decode_ratio": -1}]})
    )
    window = {"start_us": 0, "end_us": 5, "input_distribution": CONSTANT}
    assert "lengths in a window cannot be combined with total_distribution" in refusal(
        yaml.safe_dump({**SPEC, "clients": [{**client, "lifecycle": {"windows": [window]}}]})
    )


@pytest.mark.parametrize(
    ("arrival", "expected"),
    [
        ({"process": "poisson", "cv": 1}, Arrival()),
        ({"process": "constant"}, Arrival(process="constant", cv=0.0)),
        ({"process": "gamma", "shape": 4}, Arrival(process="gamma", cv=0.5)),
        ({"process": "weibull", "cv": 2}, Arrival(process="weibull", cv=2.0)),
    ],
    ids=str,
)
def test_an_arrival_is_said_by_cv_or_shape(arrival: dict[str, Any], expected: Arrival) -> None:
    assert parsed(spec_with("clients.0.arrival", arrival)).clients[0].arrival == expected


@pytest.mark.parametrize("shape", [0.3, 0.7, 1.0, 5.0, 100.0])
def test_a_weibull_shape_is_found_again_from_its_cv(shape: float) -> None:
    arrival = (
        parsed(spec_with("clients.0.arrival", {"process": "weibull", "shape": shape})).clients[0].arrival
    )
    assert weibull_shape(arrival.cv) == pytest.approx(shape, rel=1e-6)


def test_windows_say_when_and_how() -> None:
    window = {
        "start_us": 10,
        "end_us": 20,
        "trace_rate": 3,
        "arrival": {"process": "constant"},
        "input_distribution": CONSTANT,
        "output_distribution": CONSTANT,
    }
    workload = parsed({**spec_with("clients.0.lifecycle", {"windows": [window]}), "aggregate_rate": 0})
    assert workload.load == OpenLoop(rate_per_s=None)
    assert workload.clients[0].windows == (
        ActiveWindow(
            start_us=10,
            end_us=20,
            trace_rate_per_s=3.0,
            arrival=Arrival(process="constant", cv=0.0),
            prompt=Constant(value=10),
            output=Constant(value=10),
        ),
    )


def test_targets_of_service_classes_reach_the_header() -> None:
    workload = parsed({**SPEC, "goodput_slo_targets": {"batch": {"ttft_ms": 500}}})
    assert synth(workload, seed=1).header.goodput_slo_targets == {"batch": SLOTarget(ttft_ms=500.0)}


# cohorts


def cohort(**more: object) -> tuple[Client, ...]:
    return parsed({**spec_with("clients", None), "cohorts": [{**COHORT, **more}]}).clients


def test_a_cohort_is_its_members_who_share_its_rate() -> None:
    members = cohort(rate_fraction=2, prefix_group="g", prefix_length=30)
    assert [member.id for member in members] == ["team-0", "team-1", "team-2", "team-3"]
    assert {member.rate_fraction for member in members} == {0.5}
    assert {(member.prefix_group, member.prefix_length) for member in members} == {("g", 30)}


def test_a_cohorts_members_may_have_prefixes_of_their_own() -> None:
    members = cohort(prefix_group="g", prefix_sharing="per_member")
    assert [member.prefix_group for member in members] == ["g-0", "g-1", "g-2", "g-3"]


def test_a_spike_is_one_window_whose_rate_the_members_share() -> None:
    (window,) = cohort(spike={"start_time_us": 100, "duration_us": 50, "trace_rate": 8})[0].windows
    assert window == ActiveWindow(start_us=100, end_us=150, trace_rate_per_s=2.0)


def test_a_day_follows_its_cosine_from_peak_to_trough() -> None:
    windows = cohort(diurnal={"peak_hour": 14, "peak_to_trough_ratio": 4})[0].windows
    rates = [window.rate_multiplier for window in windows]
    assert len(windows) == 24
    assert (windows[0].start_us, windows[-1].end_us) == (0, 24 * HOUR_US)
    assert rates[14] == max(rates) == 1
    assert rates[2] == min(rates) == pytest.approx(0.25)
    assert rates[8] == rates[20] == pytest.approx(0.625)


def test_a_drain_falls_in_a_line_to_none() -> None:
    before, *steps = cohort(drain={"start_time_us": 100, "ramp_duration_us": 1000})[0].windows
    assert before == ActiveWindow(start_us=0, end_us=100)
    assert [step.rate_multiplier for step in steps] == pytest.approx(np.arange(0.95, 0, -0.1))
    assert (steps[0].start_us, steps[-1].end_us) == (100, 1100)
    assert len(cohort(drain={"start_time_us": 0, "ramp_duration_us": 1000})[0].windows) == 10


def test_a_drain_sends_half_of_what_a_full_rate_would() -> None:
    spec = {**spec_with("clients", None), "aggregate_rate": 1000, "num_requests": 0, "horizon": 20_000_000}
    spec["cohorts"] = [{**COHORT, "drain": {"start_time_us": 0, "ramp_duration_us": 10_000_000}}]
    assert len(synth(parsed(spec), seed=3)) == pytest.approx(5000, abs=4 * math.sqrt(5000))


# the page


def test_the_page_says_of_every_distribution_what_it_draws() -> None:
    assert set(DRAWS) == set(DISTRIBUTIONS)


def test_the_pages_example_is_a_specification() -> None:
    (example,) = [block for block in blocks_of(PAGE) if block.language == "yaml"]
    workload = parse_spec(example.text, source="the page")
    assert [client.id for client in workload.clients] == ["chat", "batch"]
    assert len(synth(workload, seed=1)) == 500
