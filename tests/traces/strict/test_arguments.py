"""The functions of the doors with arguments that cannot be: an error of vtwin's own that names the parameter."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import calibrate
import observe
import replay
import sim
import traces
from tests.traces.made import small_trace
from tests.twins import SIXTEEN_SEATS
from traces.workload import WorkloadOptions

Base = Callable[[Path], tuple[Callable[..., object], dict[str, Any]]]
SLO = "ttft_p99=500ms"
BAD = {
    "nan": math.nan,
    "inf": math.inf,
    "-1": -1,
    "0": 0,
    "'5'": "5",
    "None": None,
    "10^30": 10**30,
    "True": True,
    "a path without a name": "",
    "a path with a NUL": "a\0b",
    "an object": object(),
}
COUNTS = ("nan", "inf", "-1", "'5'", "10^30", "True", "an object")
"""What is no count; where None is the default, it is one."""
FROM_1 = (*COUNTS, "0")
NUMBERS = FROM_1
NO_SEED = COUNTS
NO_TEXT = ("nan", "-1", "0", "None", "True", "an object", "a path without a name")
NO_PATH = (*NO_TEXT, "a path with a NUL")
GIVEN_NO_TEXT = ("nan", "-1", "0", "True", "an object", "a path without a name")
GIVEN_NO_PATH = (*GIVEN_NO_TEXT, "a path with a NUL")
"""Where None is the default."""
NO_OBJECT = ("nan", "-1", "0", "None", "True", "an object")

FUNCTIONS: dict[str, tuple[Callable[[Path], Callable[..., object]], dict[str, tuple[str, ...]]]] = {}


def a_trace(folder: Path) -> Path:
    traces.write_trace(small_trace(), folder / "t")
    return folder / "t"


def a_twin(folder: Path) -> Path:
    (folder / "twin.yaml").write_text(SIXTEEN_SEATS)
    return folder / "twin.yaml"


def function(**wrong: tuple[str, ...]) -> Callable[[Callable[[Path], Callable[..., object]]], None]:
    def kept(made: Callable[[Path], Callable[..., object]]) -> None:
        FUNCTIONS[made.__name__] = (made, wrong)

    return kept


@function(
    workload=NO_OBJECT,
    rate_per_s=NUMBERS,
    slo=NO_TEXT,
    profiles=NO_OBJECT,
    split=FROM_1,
    context=FROM_1,
    availability=NUMBERS,
    num_requests=FROM_1,
    seed=NO_SEED,
    prices=("nan", "-1", "0", "True", "an object", "a path without a name"),
)
def plan_fleet(folder: Path) -> Callable[..., object]:
    base = {"workload": str(a_trace(folder)), "rate_per_s": 5.0, "slo": SLO, "profiles": "A100"}
    return lambda **given: replay.plan_fleet(**{**base, **given})


@function(
    workload=NO_OBJECT,
    slo=NO_TEXT,
    profiles=NO_OBJECT,
    context=FROM_1,
    output_frac=NUMBERS,
    total_tokens_max=FROM_1,
    availability=NUMBERS,
    failures=GIVEN_NO_TEXT,
    utilization_cap=NUMBERS,
    prices=GIVEN_NO_PATH,
)
def fleet_demand(folder: Path) -> Callable[..., object]:
    base = {"workload": str(a_trace(folder)), "slo": SLO, "profiles": "A100"}
    return lambda **given: replay.fleet_demand(**{**base, **given})


@function(demand=NO_OBJECT, rate_per_s=NUMBERS, split=FROM_1)
def size_fleet(folder: Path) -> Callable[..., object]:
    base = {"demand": replay.fleet_demand(a_trace(folder), SLO, "A100"), "rate_per_s": 5.0}
    return lambda **given: replay.size_fleet(**{**base, **given})


@function(a=NO_PATH, b=NO_PATH, twin=GIVEN_NO_PATH, seed=NO_SEED)
def compare_files(folder: Path) -> Callable[..., object]:
    base = {"a": a_trace(folder), "b": a_trace(folder)}
    return lambda **given: calibrate.compare_files(**{**base, **given})


@function(path=NO_PATH, tp=FROM_1, rate_per_s=("nan", "inf", "-1", "'5'", "True"))
def check_profile(folder: Path) -> Callable[..., object]:
    base = {"path": a_twin(folder)}
    return lambda **given: replay.check_profile(**{**base, **given})


@function(output=NO_PATH, port=COUNTS, max_body_bytes=FROM_1)
def receive_spans(folder: Path) -> Callable[..., object]:
    return lambda **given: observe.receive_spans(**{"output": folder / "r", **given})


@function(path=NO_PATH)
def describe_file(folder: Path) -> Callable[..., object]:
    return lambda **given: traces.describe_file(**{"path": a_trace(folder), **given})


@function(grid=NO_PATH, jobs=FROM_1)
def sweep(folder: Path) -> Callable[..., object]:
    a_twin(folder)
    (folder / "grid.yaml").write_text("config: twin.yaml\nworkloads: {a: {rate: 2, num_requests: 5}}\n")
    return lambda **given: replay.sweep(**{"grid": folder / "grid.yaml", **given})


@function(workload=NO_OBJECT, twin=NO_OBJECT, slo=NO_TEXT, seeds=FROM_1)
def find_capacity(folder: Path) -> Callable[..., object]:
    base = {"workload": small_trace(), "twin": a_twin(folder), "slo": SLO}
    return lambda **given: replay.find_capacity(**{**base, **given})


@function(workload=NO_OBJECT, twin=NO_OBJECT, slo=NO_TEXT, max_think_time_s=COUNTS)
def find_sessions(folder: Path) -> Callable[..., object]:
    base = {"workload": small_trace(), "twin": a_twin(folder), "slo": SLO}
    return lambda **given: replay.find_sessions(**{**base, **given})


@function(workload=NO_OBJECT, config=NO_PATH, slo=NO_TEXT, keep=FROM_1, seeds=FROM_1)
def tune(folder: Path) -> Callable[..., object]:
    base = {"workload": WorkloadOptions(), "config": a_twin(folder), "slo": SLO}
    return lambda **given: replay.tune(**{**base, **given})


@function(trace=NO_OBJECT, config=NO_OBJECT, max_concurrency=FROM_1, horizon_us=COUNTS)
def simulate_trace(folder: Path) -> Callable[..., object]:
    base = {"trace": small_trace(), "config": a_twin(folder)}
    return lambda **given: replay.simulate_trace(**{**base, **given})


@function(trace=NO_OBJECT, twin=NO_OBJECT)
def run(folder: Path) -> Callable[..., object]:
    return lambda **given: replay.run(**{"trace": small_trace(), "twin": a_twin(folder), **given})


@function(max_concurrency=FROM_1, horizon_us=COUNTS)
def RunSettings(_: Path) -> Callable[..., object]:  # noqa: N802 - the class it makes
    return replay.RunSettings


@function(
    prompts=FROM_1,
    samples=FROM_1,
    batches=FROM_1,
    batch_share=NUMBERS,
    update_us=COUNTS,
    partial_share=NUMBERS,
)
def RolloutSettings(_: Path) -> Callable[..., object]:  # noqa: N802 - the class it makes
    return lambda **given: replay.RolloutSettings(**{"prompts": 2, "samples": 2, **given})


@function(workload=NO_OBJECT, twin=NO_OBJECT)
def run_rollouts(folder: Path) -> Callable[..., object]:
    base = {"workload": WorkloadOptions(), "twin": a_twin(folder)}
    settings = replay.RolloutSettings(prompts=2, samples=2)
    return lambda **given: replay.run_rollouts(**{**base, **given}, settings=settings)


@function(twin=NO_OBJECT, factor=NUMBERS)
def paced(folder: Path) -> Callable[..., object]:
    return lambda **given: replay.paced(**{"twin": a_twin(folder), "factor": 1.0, **given})


@function(max_concurrency=FROM_1, users=COUNTS, closed_loop=(*COUNTS, "0"), waves=(*COUNTS, "0"))
def Pacing(_: Path) -> Callable[..., object]:  # noqa: N802 - the class it makes
    return replay.Pacing


@function(trace=NO_OBJECT, max_concurrency=FROM_1)
def pacing_of(_: Path) -> Callable[..., object]:
    return lambda **given: replay.pacing_of(**{"trace": small_trace(), **given})


@function(trace=NO_OBJECT, block_size=(*FROM_1, "None"), hash_lookahead=COUNTS)
def requests_from_trace(_: Path) -> Callable[..., object]:
    return lambda **given: replay.requests_from_trace(**{"trace": small_trace(), "block_size": 16, **given})


@function(model=NO_TEXT, gpu=NO_TEXT, tp=(*FROM_1, "None"), vllm_version=NO_TEXT[:3])
def lookup_defaults(_: Path) -> Callable[..., object]:
    return lambda **given: replay.lookup_defaults(**{"model": "m", "gpu": "H100", "tp": 1, **given})


@function(path=NO_PATH)
def load_config(_: Path) -> Callable[..., object]:
    return replay.load_config


@function(path=NO_PATH)
def read_defaults(_: Path) -> Callable[..., object]:
    return replay.read_defaults


@function(config=NO_OBJECT, host=NO_TEXT, port=COUNTS, model=NO_TEXT)
def serving(folder: Path) -> Callable[..., object]:
    return lambda **given: replay.serving(**{"config": a_twin(folder), **given})


@function(config=NO_OBJECT, host=NO_TEXT, port=COUNTS, model=NO_TEXT)
def run_server(folder: Path) -> Callable[..., object]:
    base = {"config": a_twin(folder), "announce": lambda _: None}
    return lambda **given: replay.run_server(**{**base, **given})


@function(path=NO_PATH)
def read_trace(_: Path) -> Callable[..., object]:
    return traces.read_trace


@function(path=NO_PATH)
def read_recorded(_: Path) -> Callable[..., object]:
    return traces.read_recorded


@function(path=NO_PATH)
def read_header(_: Path) -> Callable[..., object]:
    return traces.read_header


@function(path=NO_PATH)
def check_trace(_: Path) -> Callable[..., object]:
    return traces.check_trace


@function(source=NO_TEXT, path=NO_PATH)
def convert(folder: Path) -> Callable[..., object]:
    return lambda **given: traces.convert(**{"source": "azure", "path": folder / "a.csv", **given})


@function(trace=NO_OBJECT, stem=NO_PATH)
def write_trace(folder: Path) -> Callable[..., object]:
    return lambda **given: traces.write_trace(**{"trace": small_trace(), "stem": folder / "w", **given})


@function(trace=NO_OBJECT, duration_us=("nan", "inf", "-1", "'5'", "None", "True", "an object"))
def goodput(_: Path) -> Callable[..., object]:
    base = {"trace": small_trace(), "slo_us": {"ttft_us": 5.0}, "duration_us": 5.0}
    return lambda **given: traces.goodput(**{**base, **given})


@function(text=NO_OBJECT)
def parse_slo(_: Path) -> Callable[..., object]:
    return traces.parse_slo


@function(text=NO_OBJECT)
def parse_run_slo(_: Path) -> Callable[..., object]:
    return traces.parse_run_slo


@function(
    replicates=("nan", "inf", "-1", "'5'", "10^30", "True"), level=NUMBERS, seed=("nan", "inf", "'5'", "True")
)
def Bootstrap(_: Path) -> Callable[..., object]:  # noqa: N802 - the class it makes
    return calibrate.Bootstrap


@function(seed=("nan", "inf", "'5'", "True", "10^30"), tp=FROM_1, replicates=COUNTS, max_concurrency=FROM_1)
def Options(_: Path) -> Callable[..., object]:  # noqa: N802 - the class it makes
    return calibrate.Options


@function(trace=NO_OBJECT, config=NO_OBJECT, name=NO_TEXT, max_concurrency=FROM_1)
def fit_trace(folder: Path) -> Callable[..., object]:
    base = {"trace": small_trace(), "config": a_twin(folder), "name": "t"}
    return lambda **given: calibrate.fit_trace(**{**base, **given})


@function(observed=NO_OBJECT, simulated=NO_OBJECT, by=NO_TEXT)
def pair_traces(_: Path) -> Callable[..., object]:
    return lambda **given: calibrate.pair_traces(
        **{"observed": small_trace(), "simulated": small_trace(), **given}
    )


@function(text=("nan", "None", "True", "an object", "a path without a name"))
def parse_seconds(_: Path) -> Callable[..., object]:
    return traces.parse_seconds


@function(concurrency=(*FROM_1, "None"), think_time_us=(*COUNTS, "None"))
def ClosedLoop(_: Path) -> Callable[..., object]:  # noqa: N802 - the class it makes
    return lambda **given: traces.ClosedLoop(**{"concurrency": 1, **given})


LIMITS = dict.fromkeys(("max_body_bytes", "max_prompts", "max_request_tokens"), (*FROM_1, "None"))


@function(**LIMITS)
def RequestLimits(_: Path) -> Callable[..., object]:  # noqa: N802 - the class it makes
    return replay.RequestLimits


@function(
    timeout_s=NUMBERS,
    stall_timeout_s=NUMBERS,
    max_concurrency=FROM_1,
    prefill_concurrency=FROM_1,
    drain_s=(*COUNTS, "None"),
    max_retries=(*COUNTS, "None"),
    max_retry_wait_s=(*COUNTS, "None"),
)
def Limits(_: Path) -> Callable[..., object]:  # noqa: N802 - the class it makes
    return observe.Limits


@function(
    endpoint=NO_OBJECT,
    api=NO_TEXT,
    model=GIVEN_NO_TEXT,
    limits=NO_OBJECT,
    warmup=NO_OBJECT,
    salt=COUNTS,
    max_error_frac=COUNTS,
    scrape_s=NUMBERS,
    engine_log=GIVEN_NO_PATH,
    tokenizer=GIVEN_NO_PATH,
    processes=(*FROM_1, "None"),
    gpu=GIVEN_NO_TEXT,
    tp=FROM_1,
)
def Settings(_: Path) -> Callable[..., object]:  # noqa: N802 - the class it makes
    return lambda **given: observe.Settings(**{"endpoint": observe.parse_endpoint("http://h"), **given})


@function(url=NO_OBJECT, api_key=("nan", "-1", "0", "True", "an object"), headers=NO_OBJECT)
def parse_endpoint(_: Path) -> Callable[..., object]:
    return lambda **given: observe.parse_endpoint(**{"url": "http://h", **given})


@function(workload=NO_OBJECT, url=NO_OBJECT, api=NO_TEXT, limits=("nan", "-1", "0", "True", "an object"))
def observe_trace(_: Path) -> Callable[..., object]:
    return lambda **given: observe.observe_trace(**{"workload": small_trace(), "url": "http://h", **given})


@function(max_concurrency=FROM_1, until_us=FROM_1)
def simulate(folder: Path) -> Callable[..., object]:
    twin = replay.load_config(a_twin(folder))
    requests = replay.requests_from_trace(small_trace(), block_size=16)
    return partial(sim.simulate, requests, twin.engine, twin.latency)


CASES = [
    pytest.param(name, parameter, value, id=f"{name}({parameter}={value})")
    for name, (_, wrong) in FUNCTIONS.items()
    for parameter, values in wrong.items()
    for value in values
]


@pytest.mark.parametrize(("name", "parameter", "value"), CASES)
def test_what_cannot_be_is_named_with_its_parameter(
    name: str, parameter: str, value: str, tmp_path: Path
) -> None:
    made, _ = FUNCTIONS[name]
    called = made(tmp_path)
    with pytest.raises((traces.VtwinError, sim.InvalidConfig)) as error:
        called(**{parameter: BAD[value]})
    assert str(error.value).startswith(f"{parameter}: got "), error.value


def test_every_function_of_the_table_is_offered_by_a_door() -> None:
    offered = {name for door in (traces, replay, calibrate, observe, sim) for name in dir(door)}
    assert set(FUNCTIONS) <= offered
