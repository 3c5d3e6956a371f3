"""``vtwin fleet size --layout pools``: who takes what, different GPUs priced each, and what verified the fleet."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vtwin
from replay.fleet.inputs.fleet_workload import read_workload
from replay.fleet.inputs.pools_file import PoolSpec, assigned, read_labels
from sim.fleet import Lengths
from tests.studies.validation.fleet_traces import CASES, trace_at, twin_at
from tests.traces.made import small_trace
from traces import ConfigError, write_trace

LENGTHS = Lengths(input_tokens=np.array([90.0, 900.0, 9000.0]), output_tokens=np.array([10.0, 100.0, 1000.0]))


def pool(name: str, up_to: int | None, *takes: str, share: float | None = None) -> PoolSpec:
    return PoolSpec(name=name, profile="A100", up_to=up_to, takes=takes, share=share, price=None)


def test_by_length_the_shortest_pool_that_holds_a_request_takes_it() -> None:
    specs = [pool("a", 128), pool("b", 1024), pool("c", 2048)]
    assert assigned(specs, "length", LENGTHS, labels=None, seed=1).tolist() == [0, 1, -1]


def test_by_label_the_pool_that_takes_it_and_nobody_where_it_is_too_long() -> None:
    specs = [pool("small", 2048, "chat", "code"), pool("big", None, "reason")]
    labels = np.array(["reason", "chat", "code"])
    assert assigned(specs, "semantic", LENGTHS, labels=labels, seed=1).tolist() == [1, 0, -1]
    assert assigned(specs, "model", LENGTHS, labels=np.array(["x", "chat", "x"]), seed=1).tolist() == [
        -1,
        0,
        -1,
    ]
    with pytest.raises(ConfigError, match="takes: got chat, code, reason, expected some of other"):
        assigned(specs, "model", LENGTHS, labels=np.array(["other"] * 3), seed=1)


def test_shares_are_dealt_among_the_pools_that_hold_a_request() -> None:
    many = Lengths(input_tokens=np.tile([90.0, 9000.0], 2000), output_tokens=np.full(4000, 10.0))
    specs = [pool("a", 128, share=3), pool("b", None, share=1)]
    found = assigned(specs, "random", many, labels=None, seed=1)
    assert (found[1::2] == 1).all()
    assert (found[::2] == 0).mean() == pytest.approx(0.75, abs=0.03)
    by_label = assigned(specs, "model", many, labels=None, seed=1)
    assert (by_label[1::2] == -1).mean() == pytest.approx(0.75, abs=0.03)


@pytest.fixture
def asked(tmp_path: Path) -> list[str]:
    (tmp_path / "cdf.json").write_text("[[512, 0.4], [2048, 0.9], [8192, 1.0]]")
    (tmp_path / "pools.yaml").write_text(
        "pools:\n  - {name: long, profile: 'Qwen/Qwen3-32B@H100:2', up_to: 8192, price: 5}\n"
        "  - {name: short, profile: A100, up_to: 2048}\n"
    )
    return [
        *(
            "fleet",
            "size",
            "--layout",
            "pools",
            str(tmp_path / "pools.yaml"),
            "--workload",
            str(tmp_path / "cdf.json"),
        ),
        *("--rate", "60", "--slo", "ttft_p99=2s", "--num-requests", "1500"),
    ]


@pytest.mark.parametrize("router", ["spillover", "least-loaded"])
def test_pools_that_share_are_simulated_together_by_engines(
    asked: list[str], router: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vtwin.main([*asked, "--rate", "25", "--router", router, "--measure", "5s:20s", "--json"]) == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert (told["router"], told["verified_by"], told["met"]) == (router, "engines", True)
    assert sum(told["together"][-1]["shares"]) == pytest.approx(1)
    short, long = told["pools"]
    assert (short["name"], long["name"]) == ("short", "long")
    assert long["gpus"] == 2 * long["engines"]
    assert long["cost_per_year"] == pytest.approx(long["gpus"] * 5 * 8766)
    assert told["cost_per_year"] == pytest.approx(short["cost_per_year"] + long["cost_per_year"])
    counts = [long["engines"], short["engines"]]  # in the order of the file
    whole, second = (each for each in told["together"] if each["engines"] == counts)
    assert (whole["confirms"], second["confirms"]) == (False, True)
    assert (whole["measured_from_us"], whole["measured_to_us"]) == (5e6, 20e6)
    assert whole["method"] == "simulated"
    assert told["verified"]["ttft_p99_us"] == whole["ttft_p99_us"] <= 2_000_000
    assert sum(each["verified"]["num_requests"] for each in told["pools"]) == whole["num_requests"]


def test_a_fleet_of_different_profiles_is_one_table(
    asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert vtwin.main([*asked, "--no-verify"]) == 0
    shown = capsys.readouterr().out
    assert "Qwen3-32B@H100:2" in shown
    assert "each pool alone: the router does not look at load" in shown


def test_a_classifiers_labels_come_from_a_file(
    asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"2023-11-16 18:15:{i:02d}.0,{400 + i},50\n" for i in range(10, 50))
    (tmp_path / "azure.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    asked[asked.index("--workload") + 1] = str(tmp_path / "azure.csv")
    (tmp_path / "pools.yaml").write_text(
        "router: semantic\npools:\n  - {name: a, profile: A100, takes: [easy]}\n"
        "  - {name: b, profile: H100, takes: [hard]}\n"
    )
    assert vtwin.main([*asked, "--no-verify"]) == 2
    assert "expected a CSV of request_id and label" in capsys.readouterr().err
    from traces.importers.recorded import read_recorded

    ids = read_recorded(tmp_path / "azure.csv").column("request_id")
    labels = "".join(f"{each},{'hard' if i % 4 == 0 else 'easy'}\n" for i, each in enumerate(ids))
    (tmp_path / "labels.csv").write_text("request_id,label\n" + labels)
    assert vtwin.main([*asked, "--no-verify", "--labels", str(tmp_path / "labels.csv"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(each["name"], each["share"]) for each in told["pools"]] == [("a", 0.75), ("b", 0.25)]


@pytest.mark.parametrize(
    ("labels", "complaint"),
    [
        (b"request_id,label\n\xff\xfe,x\n", "bytes that are not UTF-8"),
        (b'request_id,label\na,"x\n', "unexpected end of data"),
        (b"id,label\na,x\n", "request_id"),
    ],
)
def test_labels_that_are_no_csv_are_refused_in_one_line(
    tmp_path: Path, labels: bytes, complaint: str
) -> None:
    write_trace(small_trace(), tmp_path / "t")
    (tmp_path / "labels.csv").write_bytes(labels)
    with pytest.raises(ConfigError) as refused:
        read_labels(read_workload(tmp_path / "t").whole, tmp_path / "labels.csv", router="semantic", name="t")
    assert f"expected a CSV of request_id and label ({complaint})" in str(refused.value).replace("'", "")


def test_labels_of_a_spreadsheet_are_read_and_a_row_without_one_is_of_no_label(tmp_path: Path) -> None:
    write_trace(small_trace(), tmp_path / "t")
    (tmp_path / "labels.csv").write_bytes(b"\xef\xbb\xbfrequest_id,label\r\na,x\r\nb\r\n")
    labels = read_labels(
        read_workload(tmp_path / "t").whole, tmp_path / "labels.csv", router="semantic", name="t"
    )
    assert labels is not None
    assert {"x", ""} == set(labels.tolist())


@pytest.mark.parametrize(
    ("measure", "complaint"),
    [
        ("5:4", "--measure: got '5:4', expected an end after the beginning"),
        ("soon:", "--measure"),
        ("1h:10h", "expected at most"),
        ("200h:", "expected at most"),
    ],
)
def test_a_measured_part_that_cannot_be_is_told(
    asked: list[str], measure: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vtwin.main([*asked, "--measure", measure]) == 2
    assert complaint in capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("pools: []", "pools: got none"),
        ("pools: [{name: a}]", "profile"),
        ("pools: [{profile: A100}, {profile: A100}]", "a name twice"),
        ("router: fastest\npools: [{profile: A100}]", "router"),
    ],
)
def test_what_is_no_fleet_is_told(
    asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, complaint: str
) -> None:
    (tmp_path / "pools.yaml").write_text(text)
    assert vtwin.main(asked) == 2
    assert complaint in capsys.readouterr().err.strip().splitlines()[-1]


def test_requests_that_an_engine_would_refuse_are_told_before_anything_is_simulated(
    asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cdf.json").write_text("[[512, 0.4], [60000, 1.0]]")
    (tmp_path / "pools.yaml").write_text("pools: [{name: one, profile: 'Qwen/Qwen3-32B@H100:2'}]")
    assert vtwin.main(asked) == 2
    complaint = capsys.readouterr().err.strip().splitlines()[-1]
    assert "pool one: got requests of up to 59,9" in complaint
    assert "expected at most 40,960, the max_model_len of Qwen3-32B@H100:2" in complaint


def test_the_formulas_of_pools_count_the_prefixes_that_a_trace_shares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same trace and twin, with and without prefix caching: prompts of 1,024 shared tokens cost compute or none."""
    (case,) = (each for each in CASES if each.name == "prefix groups")
    trace_at(case, tmp_path / "trace")
    twin_at(case, tmp_path / "on.yaml")
    twin_at(replace(case, engine={"enable_prefix_caching": "false"}), tmp_path / "off.yaml")
    found = []
    for name in ("on", "off"):
        (tmp_path / "pools.yaml").write_text(f"pools:\n  - {{name: all, profile: {tmp_path / name}.yaml}}\n")
        words = [
            "--workload",
            str(tmp_path / "trace"),
            "--rate",
            "60",
            "--slo",
            "ttft_p99=300ms",
            "--no-verify",
        ]
        assert (
            vtwin.main(["fleet", "size", "--layout", "pools", str(tmp_path / "pools.yaml"), *words, "--json"])
            == 0
        )
        found.append(json.loads(capsys.readouterr().out)["pools"][0]["analytic"]["engines"])
    assert found[0] < found[1]
