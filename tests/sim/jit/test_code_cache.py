"""The folder of compiled code: the user's alone, each file checked before it runs."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from sim.jit import code_cache
from sim.jit.code_cache import CodeFolder, NoFolder, one_process_at_a_time, private_folder
from sim.jit.entries import Entry
from sim.jit.numba_settings import IS_PLAIN_PYTHON

pytestmark = pytest.mark.skipif(IS_PLAIN_PYTHON, reason="nothing is compiled without the JIT")


@pytest.fixture(autouse=True)
def _tell_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(code_cache, "_told", set())
    yield


def one_more(number: int) -> int:
    return number + 1


def use(folder: Path | None, function: Callable[[int], int] = one_more) -> Entry:
    """Compile or load a function, call it, and return it."""
    entry = Entry(function, None, lambda: [NoFolder() if folder is None else CodeFolder(folder)])
    assert entry(41) == function(41)
    return entry


def empty(_: bytes) -> bytes:
    return b""


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def one_bit_off(content: bytes) -> bytes:
    middle = len(content) * 2 // 3
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def noise(_: bytes) -> bytes:
    return b"\x80\x04noise" * 20


@pytest.mark.parametrize("damage", [empty, half, one_bit_off, noise])
def test_a_damaged_file_is_told_and_made_again(
    damage: Callable[[bytes], bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use(tmp_path)
    assert use(tmp_path).num_loaded == 1
    assert capsys.readouterr().err == ""
    (file,) = tmp_path.rglob("*.code")
    file.write_bytes(damage(file.read_bytes()))
    assert use(tmp_path).num_loaded == 0
    assert use(tmp_path).num_loaded == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"compiled code: {file}: got a damaged file, expected what was written; compiled again"


def test_a_full_disk_costs_the_next_run_time_not_this_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(code_cache, "write_checked", full)
    use(tmp_path)
    use(tmp_path)
    (line,) = capsys.readouterr().err.splitlines()
    assert "got No space left on device" in line


def test_the_folder_is_made_for_the_user_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = tmp_path / "cache" / "engine-1"
    assert private_folder(wanted) == wanted
    assert wanted.stat().st_mode & 0o777 == wanted.parent.stat().st_mode & 0o777 == 0o700
    wanted.chmod(0o755)
    assert private_folder(wanted) == wanted
    assert wanted.stat().st_mode & 0o777 == 0o700
    assert capsys.readouterr().err == ""


def test_a_folder_that_others_can_write_to_is_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_cache.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    wanted = tmp_path / "cache" / "engine-1"
    private_folder(wanted)
    wanted.parent.chmod(0o777)
    other = tmp_path / "temporary" / f"vtwin-{os.getuid()}" / "engine-1"
    assert private_folder(wanted) == other
    assert "can write to" in capsys.readouterr().err
    wanted.parent.chmod(0o1777)  # as /tmp: others cannot rename what is not theirs
    assert private_folder(wanted) == wanted
    wanted.chmod(0o770)
    assert private_folder(wanted) == other


def test_a_folder_of_another_user_is_not_used_and_without_any_nothing_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_cache.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    (tmp_path / "engine-1").mkdir(mode=0o700)
    monkeypatch.setattr(code_cache.os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    assert private_folder(tmp_path / "engine-1") is None
    (line,) = capsys.readouterr().err.splitlines()
    assert "another user" in line
    assert line.endswith("compiled for this run only")
    assert use(None).num_loaded == 0


def test_code_that_another_user_wrote_is_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(tmp_path)
    (file,) = tmp_path.rglob("*.code")
    real, own = os.fstat, os.getuid()

    def owned_by(user: int) -> Callable[[int], os.stat_result]:
        return lambda handle: os.stat_result((*real(handle)[:4], user, *real(handle)[5:10]))

    monkeypatch.setattr(code_cache.os, "fstat", owned_by(own + 1))
    assert use(tmp_path).num_loaded == 0
    assert capsys.readouterr().err == (
        f"compiled code: {file}: got a file of another user, expected one of yours; compiled again\n"
    )
    monkeypatch.setattr(code_cache.os, "fstat", owned_by(0))
    assert use(tmp_path).num_loaded == 1


def test_another_checkout_of_the_same_sources_compiles_nothing(tmp_path: Path) -> None:
    """Neither where a source lies nor when it was written tells code apart, but what it says does."""
    hits = []
    for checkout, written, more in (("one", 10**9, 2), ("two", 15 * 10**8, 2), ("three", 10**9, 3)):
        source = tmp_path / checkout / "module.py"
        source.parent.mkdir()
        source.write_text(f"def more(number):\n    return number + {more}\n")
        os.utime(source, (written, written))
        names: dict[str, Any] = {"__name__": "module"}
        exec(compile(source.read_text(), str(source), "exec"), names)  # noqa: S102 - the test's own words
        hits.append(use(tmp_path / "code", names["more"]).num_loaded)
    assert hits == [0, 1, 0]


def test_one_process_compiles_while_others_wait(tmp_path: Path) -> None:
    with one_process_at_a_time(tmp_path, "plain"):
        for what, is_free in (("plain", False), ("whole", True)):
            with (tmp_path / f"compiling-{what}").open("w") as file:
                asked = nullcontext() if is_free else pytest.raises(BlockingIOError)
                with asked:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (tmp_path / "compiling-plain").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("folder", [None, Path("/nowhere/to/be/written")])
def test_nobody_waits_where_nothing_can_be_locked(folder: Path | None) -> None:
    with one_process_at_a_time(folder, "plain"):
        pass
