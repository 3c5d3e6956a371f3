"""The newest question takes the place of the one under way, whatever that does."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from replay.explore import question_process
from replay.explore.asked_run import AskedRun
from replay.explore.question_process import DONE, Begun, QuestionProcess
from tests.twins import SIXTY_FOUR_SEATS
from traces.workload import WorkloadOptions

LONG = {"rate": "100", "num_requests": "20000", "instances": "200"}
"""A state that takes seconds to simulate."""
SHORT = {"rate": "5", "num_requests": "100"}


class Heard:
    """What a process told, and who waits for it."""

    def __init__(self) -> None:
        self.messages: list[Mapping[str, Any]] = []
        self.done = asyncio.Event()

    def tell(self, message: Mapping[str, Any]) -> None:
        self.messages.append(message)
        if message["kind"] == DONE:
            self.done.set()

    async def end(self) -> list[Mapping[str, Any]]:
        await asyncio.wait_for(self.done.wait(), 60)
        self.done.clear()
        told, self.messages = self.messages, []
        return told


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Begun:
    config = tmp_path_factory.mktemp("explored") / "twin.yaml"
    config.write_text(SIXTY_FOUR_SEATS)
    load = WorkloadOptions(rate=5.0, num_requests=300, prompt_tokens=300, output_tokens=40)
    return Begun(asked=AskedRun(config=config, workload=load, slo="ttft=500ms"))


@pytest.fixture
async def asked(begun: Begun) -> AsyncIterator[tuple[QuestionProcess, Heard]]:
    heard = Heard()
    process = QuestionProcess(begun, heard.tell)
    yield process, heard
    process.close()


async def test_a_process_answers_the_newest_question_only(asked: tuple[QuestionProcess, Heard]) -> None:
    process, heard = asked
    process.ask("turn", SHORT)
    first = await heard.end()
    assert [each["kind"] for each in first] == ["answer", DONE]

    # several at once: the last alone is answered
    for number in range(5):
        process.ask("turn", {**SHORT, "rate": str(5 + number)})
    last = await heard.end()
    assert [each["kind"] for each in last] == ["answer", DONE]
    assert "--rate 9 " in last[0]["command"]
    assert heard.messages == []

    # one that takes long gives way: the process is ended by force, another answers
    before = process._running.process.pid  # type: ignore[union-attr]
    process.ask("turn", LONG)
    await asyncio.sleep(0.15)
    began = time.monotonic()
    process.ask("turn", SHORT)
    told = await heard.end()
    assert [each["kind"] for each in told] == ["answer", DONE]
    assert "--rate 5 " in told[0]["command"]
    assert process._running.process.pid != before or time.monotonic() - began < question_process.PATIENCE_S  # type: ignore[union-attr]

    # what nobody wants any more is given up, and a fault of a state is told beside its knob
    process.ask("turn", LONG)
    process.cancel()
    assert [each["kind"] for each in await heard.end()] == [DONE]
    process.ask("turn", {"rate": "-1"})
    fault, _ = await heard.end()
    assert (fault["kind"], fault["knob"]) == ("error", "rate")
    assert "expected a number from 0.001" in fault["text"]

    # a process that rests answers when it goes on
    process.rest()
    process.ask("turn", SHORT)
    await asyncio.sleep(0.2)
    assert heard.messages == []
    process.go_on()
    assert [each["kind"] for each in await heard.end()] == ["answer", DONE]

    # one that dies says so, and the next question begins another
    process.ask("turn", LONG)
    await asyncio.sleep(0.05)
    os.kill(process._running.process.pid, signal.SIGKILL)  # type: ignore[union-attr, arg-type]
    fault, _ = await heard.end()
    assert "has ended" in fault["text"]
    process.ask("turn", SHORT)
    assert (await heard.end())[0]["kind"] == "answer"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system does not say so")
async def test_a_process_does_not_hear_ctrl_c_from_its_start(asked: tuple[QuestionProcess, Heard]) -> None:
    process, _ = asked
    process.begin()
    status = Path(f"/proc/{process._running.process.pid}/status").read_text()  # type: ignore[union-attr]
    (held,) = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigBlk"))
    assert held >> (signal.SIGINT - 1) & 1
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


async def test_a_question_that_takes_too_long_is_given_up(
    asked: tuple[QuestionProcess, Heard], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, heard = asked
    monkeypatch.setattr(question_process, "DEADLINE_S", 0.2)
    process.ask("turn", LONG)
    fault, _ = await heard.end()
    assert (fault["kind"], fault["text"]) == ("error", question_process.TOO_LONG)


ALONE = """
import asyncio, os, sys
from pathlib import Path
from replay.explore.asked_run import AskedRun
from replay.explore.question_process import Begun, QuestionProcess
from traces.workload import WorkloadOptions

async def rest() -> None:
    asked = AskedRun(config=Path(sys.argv[1]), workload=WorkloadOptions(rate=5, num_requests=9))
    ready = asyncio.Event()
    process = QuestionProcess(Begun(asked=asked), lambda message: ready.set())
    process.ask("form", {})
    await ready.wait()
    process.rest()
    print(process._running.process.pid, flush=True)
    os.kill(os.getpid(), 9)

if __name__ == "__main__":
    asyncio.run(rest())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process rests")
def test_a_process_that_rests_ends_with_its_parent(begun: Begun, tmp_path: Path) -> None:
    script = tmp_path / "alone.py"
    script.write_text(ALONE)
    words = [sys.executable, str(script), str(begun.asked.config)]
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": root}
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid = int(done.stdout)
    for _ in range(100):
        if not is_alive(pid):
            return
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("the process outlived its parent")


def is_alive(pid: int) -> bool:
    """Return whether a process runs or rests; one that nobody has waited for has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
