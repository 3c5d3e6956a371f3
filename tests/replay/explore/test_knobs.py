"""Knobs: each said once, there where it means something, and read strictly."""

from __future__ import annotations

from lazy_dataclasses import replace
from pathlib import Path

import pytest

from replay.explore.asked_run import AskedRun
from replay.explore.knobs import KNOBS, at_fault, form_of, knobs_of, turned
from replay.explore.state_answers import StateAnswers
from replay.twin.config_keys import all_keys
from tests.replay.explore.test_as_the_command import BEGINNINGS, beginning
from traces import ConfigError
from traces.workload import SessionOptions, WorkloadOptions
from traces.workload.contradictions import RANGES


@pytest.fixture
def drawn(tmp_path: Path) -> StateAnswers:
    return beginning("drawn", tmp_path)


def test_each_knob_has_a_name_and_a_place_of_its_own() -> None:
    assert len({each.name for each in KNOBS}) == len(KNOBS)
    assert len({(each.place, each.at) for each in KNOBS}) == len(KNOBS)
    keys = {each.path for each in all_keys()}
    for knob in KNOBS:
        if knob.place == "key":
            assert knob.at in keys
        if knob.place == "workload":
            assert knob.at in WorkloadOptions.__dataclass_fields__  # type: ignore[attr-defined]
            low, high = RANGES.get(knob.at, (knob.least, knob.most))
            assert low <= knob.least <= knob.most <= high, knob.name
        if knob.place == "sessions":
            assert knob.at in SessionOptions.__dataclass_fields__  # type: ignore[attr-defined]


def test_every_knob_is_on_some_page_and_on_no_page_without_meaning(tmp_path: Path) -> None:
    pages = {name: set(knobs_of(beginning(name, tmp_path).begin)) for name in BEGINNINGS}
    assert {"rate", "prompt_tokens", "max_num_seqs", "instances", "slo_ttft"} <= pages["drawn"]
    assert {"prompt_scale", "output_scale"} <= pages["like"]
    assert "prompt_tokens" not in pages["like"]
    assert {"model", "gpu", "tp"} <= pages["model"]
    assert not {"model", "gpu", "tp", "sessions"} & pages["drawn"]
    assert "concurrency" in pages["users"]
    assert "rate" not in pages["users"]
    never = {each.name for each in KNOBS} - set().union(*pages.values())
    assert never == {"speed", "sessions", "think_time_scale", "num_cpu_blocks"}, (
        "with --trace, sessions, a tier"
    )


def test_a_recorded_load_of_sessions_has_theirs(tmp_path: Path) -> None:
    (tmp_path / "twin.yaml").write_text(
        BEGINNINGS["drawn"][0].replace("engine: {", "engine: {num_cpu_blocks: 50, ")
    )
    trace = tmp_path / "agents.csv"
    from traces import write_trace
    from traces.workload import trace_from_options

    write_trace(
        trace_from_options(WorkloadOptions(rate=2, rounds=3, num_requests=30, prompt_tokens=40)),
        trace.with_suffix(""),
    )
    asked = AskedRun(config=tmp_path / "twin.yaml", workload=WorkloadOptions(trace=trace.with_suffix("")))
    begin = StateAnswers(asked, None).begin
    assert {"speed", "sessions", "think_time_scale", "num_cpu_blocks"} <= set(knobs_of(begin))
    run = turned(begin, {"sessions": "4", "think_time_scale": "0.5"})
    assert run.words()[-4:] == ["--sessions", "4", "--think-time-scale", "0.5"]
    assert run.run().summary["num_requests"] == 30


def test_what_a_state_does_not_name_is_as_in_the_beginning(drawn: StateAnswers) -> None:
    assert turned(drawn.begin, {}) == drawn.begin.asked
    begins = {str(each["name"]): str(each["begins"]) for each in form_of(drawn.begin)}
    assert turned(drawn.begin, begins) == drawn.begin.asked
    assert (begins["rate"], begins["max_num_seqs"], begins["slo_ttft"], begins["instances"]) == (
        "12",
        "64",
        "500",
        "1",
    )


def test_a_turned_knob_is_in_the_command(drawn: StateAnswers) -> None:
    state = {
        "rate": "7.25",
        "max_num_seqs": "32",
        "slo_ttft": "",
        "slo_tpot": "40",
        "instances": "2",
        "routing": "random",
    }
    command = turned(drawn.begin, state).command()
    for words in (
        *(
            "--rate 7.25",
            "--set engine.max_num_seqs=32",
            "--slo tpot=40ms",
            "--instances 2",
            "--routing random",
        ),
        "--prompt-tokens 300",
    ):
        assert words in command
    assert "ttft" not in command


def test_each_class_has_its_share(tmp_path: Path) -> None:
    begin = beginning("classes", tmp_path).begin
    shown = {str(each["name"]): each for each in form_of(begin)}
    assert (shown["share_critical"]["begins"], shown["share_batch"]["begins"]) == ("0.7", "0.3")
    assert not {"prompt_tokens", "share_chat"} & shown.keys()
    asked = turned(begin, {"share_batch": "2.1"})
    assert asked.command().endswith("--rate 12 --shares batch=2.1 --num-requests 300 --slo ttft=500ms")
    classes = asked.run().summary["groups"]["by_column"]["slo_class"]
    assert {name: each["num_requests"] / 300 for name, each in classes.items()} == pytest.approx(
        {"critical": 0.25, "batch": 0.75}, abs=0.08
    )
    assert turned(begin, {"share_batch": "0.3", "share_critical": "0.7"}) == begin.asked
    with pytest.raises(ConfigError, match="share_batch: got '-1', expected a number from") as refused:
        turned(begin, {"share_batch": "-1"})
    assert at_fault(str(refused.value)) == "share_batch"
    assert at_fault("--shares batch: got 'x', expected a number") == "share_batch"


def test_shares_begin_as_they_are_given(tmp_path: Path) -> None:
    begun = beginning("classes", tmp_path).begin.asked
    given = replace(begun, workload=replace(begun.workload, shares="critical=4"))
    begin = StateAnswers(given, None).begin
    assert begin.shares == pytest.approx({"critical": 4.0, "batch": 0.3})
    assert turned(begin, {"share_batch": "1"}).workload.shares == "critical=4,batch=1"
    of_clients = replace(begun, workload=replace(begun.workload, shares="chat=4"))
    assert StateAnswers(of_clients, None).begin.shares == pytest.approx({"chat": 4.0, "night": 0.3})


@pytest.mark.parametrize(
    ("tenants", "names"),
    [
        (("north", "south"), {"north", "south"}),
        (("critical", "south"), {"chat", "night"}),  # critical is a class in the option
        (("a,b", "south"), {"chat", "night"}),  # a comma ends a name there
        (("north", "north"), {"chat", "night"}),
        (("critical", "night"), set()),  # night is a tenant there
    ],
)
def test_shares_are_of_names_that_mean_the_same_in_the_option(
    tenants: tuple[str, str], names: set[str], tmp_path: Path
) -> None:
    begun = beginning("classes", tmp_path).begin.asked
    spec = tmp_path / "load.yaml"
    text = spec.read_text().replace("slo_class: batch", "slo_class: critical")
    for client, tenant in zip(("chat", "night"), tenants, strict=True):
        text = text.replace(f"id: {client},", f"id: {client}, tenant_id: '{tenant}',")
    spec.write_text(text)
    begin = StateAnswers(begun, None).begin
    assert set(begin.shares) == names
    for name in names:
        assert turned(begin, {f"share_{name}": "2"}).run().summary["num_requests"] == 300


@pytest.mark.parametrize(
    ("state", "name", "said"),
    [
        ({"rate": "nan"}, "rate", "expected a number from 0.001 to 100,000"),
        ({"rate": "1e9"}, "rate", "expected a number"),
        ({"max_num_seqs": "1.5"}, "max_num_seqs", "expected a whole number from 1"),
        ({"max_num_seqs": "9" * 5000}, "max_num_seqs", "expected a whole number"),
        ({"routing": "nix"}, "routing", "expected one of round-robin"),
        ({"enable_prefix_caching": "yes"}, "enable_prefix_caching", "expected true or false"),
        ({"num_requests": "20001"}, "num_requests", "to 20,000"),
        ({"instances": "257"}, "instances", "to 256"),
        ({"<b>": "1"}, "<b>", "expected one of rate"),
    ],
)
def test_a_value_that_no_knob_has_is_refused_by_its_name(
    drawn: StateAnswers, state: dict[str, str], name: str, said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        turned(drawn.begin, state)
    assert str(refused.value).startswith(f"{name}: got ")
    assert said in str(refused.value)


def test_a_fault_of_the_twin_or_the_load_is_told_beside_its_knob() -> None:
    assert at_fault("engine.max_num_seqs: got 0, expected an integer >= 1 (twin.yaml:2)") == "max_num_seqs"
    assert (
        at_fault("engine.max_num_batched_tokens 512: without chunked prefill less than …")
        == "max_num_batched_tokens"
    )
    assert at_fault("--prompt-tokens: got 0, expected an integer >= 1") == "prompt_tokens"
    assert at_fault("--slo ttft: got '0ms', expected a time > 0") == "slo_ttft"
    assert at_fault("KV cache: got 3") == ""


def test_a_load_that_is_too_long_for_a_turn_is_refused(tmp_path: Path) -> None:
    answers = beginning("drawn", tmp_path)
    begun = AskedRun(
        config=answers.begin.asked.config, workload=WorkloadOptions(rate=300, duration=100, prompt_tokens=9)
    )
    with pytest.raises(ConfigError, match=r"--num-requests: got a load of .* at most 20,000 for a turn"):
        list(StateAnswers(begun, None).turn({}))


def test_a_length_that_nobody_says_is_shown_as_it_is_drawn(tmp_path: Path) -> None:
    config = beginning("drawn", tmp_path).begin.asked.config
    asked = AskedRun(config=config, workload=WorkloadOptions(rate=5, num_requests=4000, prompt_tokens=90))
    answers = StateAnswers(asked, None)
    shown = {str(each["name"]): each for each in form_of(answers.begin)}
    assert (shown["prompt_tokens"]["begins"], shown["prompt_tokens"]["if_empty"]) == ("90", "")
    assert (shown["output_tokens"]["begins"], shown["output_tokens"]["if_empty"]) == ("", "512")
    assert "512 on average with a standard deviation of 256" in str(shown["output_tokens"]["meaning"])
    drawn = asked.load(answers.begin.twin).cells("output_tokens").floats()
    assert drawn.mean() == pytest.approx(512, rel=0.03)
    assert shown["rate"]["if_empty"] == ""
