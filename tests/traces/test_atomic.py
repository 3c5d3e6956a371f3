"""Files appear whole or not at all, and what the file system refuses is one line."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from traces import atomic
from traces.atomic import atomic_file, atomic_files, check_place, write_folder, write_text
from traces.errors import ConfigError, TraceError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_has_its_name_only_when_it_is_finished(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "a") as temporary:
        temporary.write_text("half")
        assert not (tmp_path / "a").exists()
        assert temporary.parent == tmp_path
    assert (tmp_path / "a").read_text() == "half"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), OSError(28, "No space left on device"), ValueError()])
def test_a_write_that_fails_leaves_what_was_there(fault: BaseException, tmp_path: Path) -> None:
    write_text(tmp_path / "a", "old")
    expected = ConfigError if isinstance(fault, OSError) else type(fault)
    with pytest.raises(expected), atomic_files(tmp_path) as stage:
        stage(tmp_path / "a").write_text("new")
        stage(tmp_path / "b").write_text("new")
        raise fault
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_an_error_is_one_line_that_names_the_option_and_the_path(tmp_path: Path) -> None:
    missing = tmp_path / "no" / "a"
    line = f"--steps: got No such file or directory, expected a place that can be written ({missing})"
    with pytest.raises(ConfigError) as refused:
        write_text(missing, "", option="--steps")
    assert str(refused.value) == line
    with pytest.raises(TraceError) as refused_trace:
        write_text(missing, "", error=TraceError)
    assert (
        str(refused_trace.value)
        == f"{missing}: got No such file or directory, expected a place that can be written"
    )


def test_a_link_stays_a_link_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_text("old")
    (tmp_path / "a").symlink_to(tmp_path / "real" / "a")
    write_text(tmp_path / "a", "new")
    assert (tmp_path / "a").is_symlink()
    assert (tmp_path / "real" / "a").read_text() == "new"


def test_files_are_on_the_disk_before_one_of_them_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, list[str]]] = []
    sync = os.fsync

    def watch(handle: int) -> None:
        synced.append((Path(f"/proc/self/fd/{handle}").readlink().name, names(tmp_path)))
        sync(handle)

    monkeypatch.setattr(atomic.os, "fsync", watch)
    temporaries = [f".{name}.{os.getpid()}.tmp" for name in "ab"]
    with atomic_files(tmp_path) as stage:
        for name in "ab":
            stage(tmp_path / name).write_text("new")
    assert synced == [(name, temporaries) for name in temporaries] + [(tmp_path.name, ["a", "b"])]
    synced.clear()
    with atomic_file(tmp_path / "c", is_durable=False) as temporary:
        temporary.write_text("new")
    assert synced == []


def test_a_folder_appears_with_all_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "new" / "report", {"a": "1", "b": "2"})
    assert names(tmp_path / "new" / "report") == ["a", "b"]

    def refuse(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", refuse)
    with pytest.raises(ConfigError, match=r"--report: got No space left on device, .*/other\)"):
        write_folder(tmp_path / "other", {"a": "1"}, option="--report")
    assert names(tmp_path) == ["new"]


def test_a_folder_that_is_there_keeps_its_other_files_and_loses_none_to_a_failure(tmp_path: Path) -> None:
    write_folder(tmp_path / "report", {"a": "1", "b": "2"})
    write_folder(tmp_path / "report", {"b": "3"})
    assert (tmp_path / "report" / "a").read_text() == "1"
    assert (tmp_path / "report" / "b").read_text() == "3"
    (tmp_path / "report" / "c").mkdir()
    (tmp_path / "report" / "c" / "inside").touch()
    with pytest.raises(ConfigError):
        write_folder(tmp_path / "report", {"b": "4", "missing/a": "5"})
    assert (tmp_path / "report" / "b").read_text() == "3"
    assert names(tmp_path / "report") == ["a", "b", "c"]


@pytest.fixture
def null(tmp_path: Path) -> Path:
    """A device of this test's own, as /dev/null."""
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        device.write_bytes(b"x")
    except PermissionError:
        pytest.skip("devices cannot be made here")
    return device


def test_a_device_is_written_to_and_stays_a_device(null: Path) -> None:
    write_text(null, "text")
    check_place(null)
    assert stat.S_ISCHR(null.stat().st_mode)
    assert sorted(path.name for path in null.parent.iterdir()) == ["null"]


def test_a_link_to_a_device_leads_to_it(null: Path) -> None:
    link = null.with_name("link")
    link.symlink_to(null)
    write_text(link, "<!doctype html>page")
    assert link.is_symlink()
    assert stat.S_ISCHR(null.stat().st_mode)


def test_a_pipe_gets_the_text_and_one_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="--output: got No such device or address"):
        write_text(pipe, "text", option="--output")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_folder_and_a_socket_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="got Is a directory"):
        write_text(tmp_path, "text", option="--output")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        with pytest.raises(ConfigError, match="got No such device or address"):
            write_text(tmp_path / "s", "text", option="--output")
        assert stat.S_ISSOCK((tmp_path / "s").stat().st_mode)


def test_a_link_to_a_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"
