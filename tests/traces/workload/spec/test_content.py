"""Images, reasoning, grammars, networks, think times and inference-perf in specifications: drawn as BLIS says."""

from typing import Any

import numpy as np
import pytest
import yaml

from traces import Trace, select_rows
from traces.errors import ConfigError
from traces.workload import synth
from traces.workload.spec.spec_read import parse_spec

S = 1_000_000


def constant(value: int) -> dict[str, Any]:
    return {"type": "constant", "params": {"value": value}}


def drawn(*clients: dict[str, Any], seed: int = 1, **top: object) -> Trace:
    plain = {"input_distribution": constant(10), "output_distribution": constant(20)}
    named = [{"id": f"c{i}", **plain, **client} for i, client in enumerate(clients)]
    spec: dict[str, Any] = {"version": "2", "aggregate_rate": 5, "num_requests": 400, "clients": named, **top}
    spec = {name: value for name, value in spec.items() if value is not None}
    return synth(parse_spec(yaml.safe_dump(spec), source="load.yaml"), seed=seed)


def ints(trace: Trace, name: str) -> np.ndarray:
    return trace.column(name).to_numpy(dtype=np.int64)


IMAGES = {
    "text_distribution": {"type": "uniform", "params": {"min": 5, "max": 9}},
    "image_distribution": {"type": "uniform", "params": {"min": 100, "max": 300}},
    "image_count_distribution": {"type": "uniform", "params": {"min": 0, "max": 3}},
}


def test_a_prompt_is_the_sum_of_its_text_and_its_images() -> None:
    trace = drawn({"multimodal": IMAGES}, {}, category="multimodal")
    mine = (trace.column("client_id") == "c0").to_numpy(dtype=bool)
    parts = [ints(select_rows(trace, mine), f"{kind}_tokens") for kind in ("text", "image")]
    assert (parts[0] + parts[1] == trace.requests["input_tokens"][mine].to_numpy(dtype=np.int64)).all()
    assert (parts[1] == 0).mean() == pytest.approx(0.25, abs=0.1)  # a quarter has no image
    assert parts[1].mean() == pytest.approx(1.5 * 200, rel=0.1)
    assert trace.requests.loc[~mine, "image_tokens"].isna().all()
    assert set(trace.requests.loc[~mine, "input_tokens"]) == {10}


def test_images_stand_before_the_text_and_behind_the_prefix() -> None:
    trace = drawn({"multimodal": IMAGES, "prefix_group": "g", "prefix_length": 30}, {}, category="multimodal")
    total = trace.column("image_tokens").fillna(0).to_numpy(dtype=np.int64)
    for text, tokens in zip(trace.cells("images").filled(""), total.tolist(), strict=True):
        places = [tuple(map(int, image.split(":"))) for image in text.split()]
        ends = [30, *(position + size for position, size in places)]
        assert [position for position, _ in places] == ends[:-1]
        assert ends[-1] == 30 + tokens


def test_a_round_that_goes_on_shows_the_images_before_it_again() -> None:
    parts = {
        "text_distribution": constant(10),
        "image_distribution": constant(40),
        "image_count_distribution": constant(2),
    }
    turns = {"multi_turn": {"max_rounds": 2, "context_growth": "accumulate"}}
    trace = drawn({"multimodal": parts, "reasoning": turns}, num_requests=4)
    first, second, third, _ = trace.cells("images").values.tolist()
    assert first == "0:40:s0.0.0 40:40:s0.0.1"
    assert second == f"{first} 110:40:s0.1.0 150:40:s0.1.1"  # 90 of the first prompt, 20 of its answer
    assert third == "0:40:s1.0.0 40:40:s1.0.1"
    alone = drawn({"multimodal": parts, "reasoning": {"multi_turn": {"max_rounds": 2}}}, num_requests=2)
    assert alone.cells("images").values.tolist() == ["0:40 40:40"] * 2


def test_a_multimodal_client_needs_no_input_distribution_and_takes_it_for_text() -> None:
    spec = {"multimodal": {"audio_distribution": constant(7), "audio_count_distribution": constant(2)}}
    assert set(ints(drawn(spec), "input_tokens")) == {24}  # 10 of text and two clips of 7
    spec["input_distribution"] = None  # type: ignore[assignment]
    assert set(
        ints(
            drawn(spec | {"multimodal": {**spec["multimodal"], "text_distribution": constant(3)}}),
            "input_tokens",
        )
    ) == {17}


def test_the_share_of_reasoning_is_drawn_in_per_cent() -> None:
    ratio = {"type": "gaussian", "params": {"mean": 50, "std_dev": 40, "min": 0, "max": 100}}
    shares = drawn({"reasoning": {"reason_ratio_distribution": ratio}}, category="reasoning").column(
        "reason_ratio"
    )
    assert (shares.min(), shares.max()) == (0.0, 1.0)
    assert shares.mean() == pytest.approx(0.5, abs=0.05)
    none = drawn({"reasoning": {"reason_ratio_distribution": constant(0)}}).column("reason_ratio")
    assert set(none) == {0.0}


def test_a_share_of_requests_is_guided() -> None:
    trace = drawn({"guided_frac": 0.25}, {})
    of_first = trace.requests.loc[trace.column("client_id") == "c0", "guided"]
    assert of_first.mean() == pytest.approx(0.25, abs=0.08)
    assert trace.requests.loc[trace.column("client_id") == "c1", "guided"].isna().all()


def test_a_scale_sets_the_rate_whatever_the_share() -> None:
    clients = [{"arrival": {"process": "gamma", "shape": 4, "scale": 25_000}}, {"rate_fraction": 1}]
    trace = drawn(*clients, num_requests=0, horizon=100 * S)
    number = trace.column("client_id").value_counts()
    assert number["c0"] == pytest.approx(1000, rel=0.1)  # a mean gap of 4 x 25 ms
    assert number["c1"] == pytest.approx(250, rel=0.2)  # half of 5 a second: the shares stay
    weibull = {"arrival": {"process": "weibull", "shape": 1, "scale": 50_000}}
    assert len(drawn(weibull, num_requests=0, horizon=100 * S)) == pytest.approx(2000, rel=0.1)


def test_a_network_is_of_its_clients_requests() -> None:
    trace = drawn({"network": {"rtt_ms": 1.5, "bandwidth_mbps": 100}}, {})
    rtt = trace.requests.groupby("client_id")["network_rtt_us"].agg(
        lambda values: list(values.dropna().unique())
    )
    assert rtt.to_dict() == {"c0": [1500], "c1": []}
    assert set(trace.column("network_bandwidth_mbps").dropna()) == {100.0}


def test_think_times_are_drawn_as_blis_spells_them() -> None:
    turns = {"multi_turn": {"max_rounds": 3, "think_time_us": "lognormal:mu=1,sigma=0.5,min=1,max=10"}}
    think = drawn({"reasoning": turns}).column("think_time_us").dropna().to_numpy(dtype=np.int64) / S
    assert think.size > 200
    assert (think.min(), think.max()) >= (1.0, 5.0)
    assert think.max() <= 10
    assert np.log(np.median(think)) == pytest.approx(1.0, abs=0.15)
    turns["multi_turn"]["think_time_us"] = "constant:value=500ms"
    assert set(drawn({"reasoning": turns}).column("think_time_us").dropna()) == {500_000}
    turns["multi_turn"]["think_time_us"] = "normal:mu=1"
    with pytest.raises(ConfigError, match="think_time_us: got 'normal:mu=1', expected µs, lognormal"):
        drawn({"reasoning": turns})


def test_open_rounds_add_up_drawn_think_times() -> None:
    turns = {"multi_turn": {"max_rounds": 3, "think_time_us": "lognormal:mu=0,sigma=1"}}
    requests = drawn({"reasoning": turns, "closed_loop": False}).requests
    for _, rounds in requests.groupby("session_id"):
        if len(rounds) == 3:
            gaps = np.diff(rounds.sort_values("round_index")["arrival_time_us"].to_numpy(dtype=np.int64))
            assert (gaps > 0).all()
            assert gaps[0] != gaps[1]


PERF: dict[str, Any] = {
    "stages": [{"rate": 8, "duration": 50}],
    "shared_prefix": {
        "num_unique_system_prompts": 3, "num_users_per_system_prompt": 2, "system_prompt_len": 100,
        "question_len": 20, "output_len": 30,
    },
}  # fmt: skip


def perf(**changes: object) -> Trace:
    spec = {"inference_perf": {**PERF, **changes}}
    return drawn(clients=None, aggregate_rate=None, num_requests=None, **spec)


def test_one_stage_of_inference_perf_sends_its_exact_number_up_to_its_end() -> None:
    requests = perf().requests
    assert len(requests) == 400
    counts = requests["client_id"].value_counts()
    assert (counts.size, counts.max(), counts.min()) == (6, 67, 66)
    last = requests.groupby("client_id")["arrival_time_us"].max()
    assert (last == 50 * S).all()
    assert set(requests["prefix_group"]) == {"prompt-0", "prompt-1", "prompt-2"}
    assert requests[
        ["input_tokens", "output_tokens", "prefix_length"]
    ].drop_duplicates().to_numpy().tolist() == [[20, 30, 100]]


def test_stages_of_inference_perf_come_one_after_another() -> None:
    due = ints(perf(stages=[{"rate": 2, "duration": 100}, {"rate": 10, "duration": 100}]), "arrival_time_us")
    assert (due <= 100 * S).sum() == pytest.approx(200, rel=0.25)
    assert ((due > 100 * S) & (due <= 200 * S)).sum() == pytest.approx(1000, rel=0.15)


def test_chat_of_inference_perf_is_a_session_per_user() -> None:
    users = {**PERF["shared_prefix"], "enable_multi_turn_chat": True}
    requests = perf(shared_prefix=users).requests
    assert requests["session_id"].nunique() == 6
    assert len(requests) == 400
    assert set(requests["think_time_us"].dropna()) == {750_000}  # 6 users at 8 a second
    assert set(requests["input_tokens"]) == {20}


def test_inference_perf_stands_alone() -> None:
    with pytest.raises(ConfigError, match="clients: cannot be combined with inference_perf"):
        drawn({}, aggregate_rate=None, inference_perf=PERF)


def test_an_adapter_is_its_clients() -> None:
    trace = drawn({"adapter": "lora-1"}, {"adapter": "lora-2"}, {})
    named = trace.requests.groupby("client_id")["adapter"].agg(lambda values: list(values.dropna().unique()))
    assert named.to_dict() == {"c0": ["lora-1"], "c1": ["lora-2"], "c2": []}
