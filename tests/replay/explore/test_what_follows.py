"""A page asks over its socket: the turn is answered first, then sharper answers follow, each with the turn's number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse

from replay.explore.asked_run import AskedRun
from replay.explore.page_server import serving_page
from replay.explore.question_process import Begun
from tests.twins import SIXTY_FOUR_SEATS
from traces.workload import WorkloadOptions

PATIENCE_S = 60


async def ask(socket: ClientWebSocketResponse, what: str, turn: int, state: dict[str, str]) -> None:
    await socket.send_str(json.dumps({"what": what, "turn": turn, "state": state}))


async def until(socket: ClientWebSocketResponse, kind: str) -> list[dict[str, Any]]:
    """Return the messages up to the first of this kind."""
    found: list[dict[str, Any]] = []
    while not found or found[-1]["kind"] != kind:
        found.append(json.loads(await socket.receive_str(timeout=PATIENCE_S)))
    return found


async def test_sharper_answers_follow_a_turn_and_give_way_to_a_newer_one(tmp_path: Path) -> None:
    (tmp_path / "twin.yaml").write_text(SIXTY_FOUR_SEATS)
    load = WorkloadOptions(rate=5.0, num_requests=300, prompt_tokens=300, output_tokens=40)
    begun = Begun(asked=AskedRun(config=tmp_path / "twin.yaml", workload=load, slo="ttft=300ms"))
    async with serving_page(begun, state="rate=8") as place, ClientSession() as session:
        assert place.link.endswith("/#rate=8")
        own = {"Origin": f"http://127.0.0.1:{place.port}"}
        url = f"{place.link.partition('#')[0].replace('http', 'ws')}socket"
        async with session.ws_connect(url, headers=own) as one, session.ws_connect(url, headers=own) as other:
            await ask(one, "form", 1, {})
            form = await until(one, "done")
            assert {each["name"] for each in form[0]["knobs"]} >= {"rate", "max_num_seqs"}

            await ask(one, "turn", 2, {"rate": "6"})
            told = await until(one, "complete")
            kinds = [each["kind"] for each in told]
            assert kinds == ["answer", "done", "curve", "sharper", "curve", "complete"]
            assert {each["turn"] for each in told} == {2}
            rough, sharper, sure = told[2], told[3], told[4]
            assert [each["name"] for each in rough["figures"]] == ["ttft", "tpot", "e2e", "throughput"]
            assert (rough["is_rough"], sure["is_rough"]) == (True, False)
            assert sharper["column"]["requests"] == "100,000"
            assert "--num-requests 100000" in sharper["command"]
            assert "(90 %: " in sure["capacity"]
            limit = [mark for mark in sure["figures"][0]["marks"] if mark["kind"] == "rule" and mark["label"]]
            assert limit[0]["label"] == "ttft_p99 300 ms"

            # what looks further goes on while a form is asked for, and ends with a newer turn, of any page
            await ask(one, "turn", 3, {"rate": "7"})
            await until(one, "done")
            await ask(one, "build", 4, {"engine.max_num_seqs": "0"})
            assert (await until(one, "error"))[-1]["faults"][0]["key"] == "latency.model"
            await ask(other, "turn", 1, {"rate": "9"})
            assert (await until(other, "answer"))[-1][
                "title"
            ] == "The server keeps up with 9 requests per second."
            assert (await until(other, "complete"))[-1]["turn"] == 1
            await ask(one, "turn", 5, {"rate": "10"})
            late = await until(one, "answer")
            assert "complete" not in {each["kind"] for each in late}
            assert late[-1]["turn"] == 5

            # both at once: each is answered, and what follows the first begins anew after the last
            await ask(one, "turn", 6, {"rate": "11"})
            await ask(other, "turn", 2, {"rate": "12"})
            for socket, turn in ((one, 6), (other, 2)):
                told = await until(socket, "complete")
                assert [each["kind"] for each in told if each["turn"] == turn][:2] == ["answer", "done"]
                assert told[-1]["turn"] == turn
