"""Light requests beside the load: at their times, out of the load's figures, and there when the server stalls."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import vtwin
from observe import report_runs
from observe.beside import probes as module
from tests.observe.servers import Behaviour, FakeServer, observed, serving, serving_in_thread
from tests.observe.workloads import every, workload
from traces import read_header


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def is_probe(server: FakeServer, number: int) -> bool:
    return server.requests[number].headers["x-request-id"].startswith("vtwin-probe")


async def test_probes_come_at_their_rate_on_connections_of_their_own_and_are_no_part_of_the_load(
    tmp_path: Path,
) -> None:
    async with serving() as server:
        seen = await observed(server, workload(every(20_000, 25)), probe_rate=20, output=tmp_path / "run")
    rows = rows_of(tmp_path / "run.probes.csv")
    assert 9 <= len(rows) <= 12
    assert [int(row["due_us"]) for row in rows] == [50_000 * place for place in range(len(rows))]
    assert all(
        int(row["due_us"]) <= int(row["sent_us"]) < int(row["first_us"]) <= int(row["last_us"])
        for row in rows
    )
    probes = [each for each in server.requests if is_probe(server, each.number)]
    assert len(probes) == len(rows)
    assert {each.body["max_tokens"] for each in probes} == {1}
    assert {len(each.body["prompt"]) for each in probes} == {1}
    load = {each.connection for each in server.requests if not is_probe(server, each.number)}
    assert not load & {each.connection for each in probes}
    assert len(seen.trace) == seen.num_ok == 25
    found = read_header(tmp_path / "run.yaml").probes
    assert found is not None
    assert (found.rate_per_s, found.num_probes, found.num_failed) == (20, len(rows), 0)
    latencies = [int(row["last_us"]) - int(row["sent_us"]) for row in rows]
    assert found.latency_us["max"] == max(latencies)
    assert found.latency_us["mean"] == pytest.approx(sum(latencies) / len(latencies), abs=0.1)
    assert "Probes, one token each way" in report_runs([tmp_path / "run"]).html()


async def test_a_server_that_stalls_delays_no_probe_and_the_probes_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LAST_WAIT_S", 0.05)
    behaviour = Behaviour(fault="stall before the head", fault_on=frozenset({2}))
    async with serving(behaviour) as server:
        seen = await observed(server, workload([0, 400_000]), probe_rate=10, output=tmp_path / "run")
    rows = rows_of(tmp_path / "run.probes.csv")
    assert seen.num_ok == 2
    assert [row["status"] for row in rows].count("aborted") == 1
    assert all(int(row["sent_us"]) - int(row["due_us"]) < 50_000 for row in rows)
    found = seen.trace.header.probes
    assert found is not None
    assert found.num_failed == 1


async def test_beyond_the_most_in_flight_a_probe_is_recorded_as_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LAST_WAIT_S", 0.05)
    monkeypatch.setattr(module, "MOST_IN_FLIGHT", 2)
    behaviour = Behaviour(ttft_s=0.3)
    async with serving(behaviour) as server:
        await observed(server, workload([0, 100_000]), probe_rate=50, output=tmp_path / "run")
    rows = rows_of(tmp_path / "run.probes.csv")
    unsent = [row for row in rows if not row["sent_us"]]
    assert unsent
    assert {row["status"] for row in unsent} == {"error"}


@pytest.mark.parametrize("processes", [1, 2])
def test_probe_rate_is_an_option_with_several_processes_too_and_in_the_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], processes: int
) -> None:
    with serving_in_thread(Behaviour()) as server:
        load = ["--num-requests", "12", "--rate", "20", "--output-tokens", "2", "--prompt-tokens", "20"]
        more = ["--probe-rate", "10", "--processes", str(processes), "--json"]
        command = ["observe", "--url", server.url, *load, "--output", str(tmp_path / "run"), *more]
        assert vtwin.main(command) == 0
    out, err = capsys.readouterr()
    probes = json.loads(out)["probes"]
    assert probes["num_probes"] == len(rows_of(tmp_path / "run.probes.csv")) > 2
    assert f"{probes['num_probes']} at 10/s, 0 failed; latency, ms: mean" in err
    assert json.loads(out)["num_requests"] == 12


def test_a_table_of_probes_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    with serving_in_thread(Behaviour()) as server:
        load = ["--num-requests", "2", "--rate", "50", "--output-tokens", "2", "--prompt-tokens", "20"]
        assert vtwin.main(["observe", "--url", server.url, *load, "--output", str(tmp_path / "run")]) == 0
    (tmp_path / "run.probes.csv").write_text("a\n1\n")
    assert vtwin.main(["report", str(tmp_path / "run"), "--output", str(tmp_path / "page.html")]) == 3
