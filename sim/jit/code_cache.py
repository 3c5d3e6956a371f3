"""Compiled code on disk: in a folder that is the user's alone, checked before it runs, rebuilt where it is damaged.

numba's own cache ends in an error or runs corrupted code from disk, and falls back to another folder in silence.
Here each file begins with a digest of the rest, and what goes wrong with the folder is one line on stderr.

Code is loaded without what only a compiler needs: numba's tables of its own functions, and the intermediate code that
other functions are linked with, which is packed and read only by a process that compiles. Both cost more than the rest.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
import stat
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import llvmlite.binding as llvm
import numba
from numba.core import caching
from numba.core.codegen import JITCodeLibrary
from numba.core.environment import Environment, lookup_environment
from numba.core.runtime import rtsys

_DIGEST_BYTES = 32
_PACKAGE: Final = Path(__file__).parent.parent
_PACKED: Final = "object code, packed bitcode"
"""What a library on disk is called whose bitcode is packed; numba's own is ``object``."""
_RUNTIME: Final = "NRT_"
"""How the names of numba's reference counting begin."""
_told: set[str] = set()
_loading_s = [0.0]


def loading_cpu_s() -> float:
    """Return the CPU seconds for which this process has loaded machine code until now."""
    return _loading_s[0]


def private_folder(wanted: Path) -> Path | None:
    """Return ``wanted``, made with mode 0700, or a place among temporary files where others could have written to it.

    None if neither can be used: then nothing is kept. A line on stderr says what is not as wanted.
    """
    fault = _fault(wanted)
    if fault is None:
        return wanted
    other = Path(tempfile.gettempdir()) / f"vtwin-{os.getuid()}" / wanted.name
    if _fault(other) is not None:
        _tell("folder", f"{fault}; compiled for this run only")
        return None
    _tell("folder", f"{fault}; kept in {other.parent}")
    return other


def _fault(folder: Path) -> str | None:
    """Return why a folder and its parent, both made where they lack, cannot be trusted with code; None: they can."""
    for each in (folder.parent, folder):
        try:
            each.parent.mkdir(parents=True, exist_ok=True)
            each.mkdir(mode=0o700, exist_ok=True)
            found = each.stat()
            is_shared = bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
            if found.st_uid != os.getuid() and (each == folder or found.st_uid != 0):
                return f"{each}: got a folder of another user, expected one of yours"
            if is_shared and (each == folder or not found.st_mode & stat.S_ISVTX):
                return f"{each}: got a folder that others can write to, expected one that only you can (chmod 700)"
            if each == folder and stat.S_IMODE(found.st_mode) != 0o700:
                each.chmod(0o700)
        except OSError as error:
            return f"{each}: got {error.strerror}, expected a folder that can be written"
    return None


@contextmanager
def one_process_at_a_time(folder: Path | None, what: str) -> Iterator[None]:
    """Allow one process at a time to compile ``what`` into a folder; others that need the same wait, and find it there.

    Without a folder, or in one that cannot be written or locked, no process waits.
    """
    with ExitStack() as stack:
        if folder is not None:
            with suppress(OSError):
                file = stack.enter_context((folder / f"compiling-{what}").open("w"))
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _tell(what: str, line: str) -> None:
    """Print a line on stderr, one of its kind per process."""
    if what not in _told:
        _told.add(what)
        sys.stderr.write(f"compiled code: {line}\n")


class _Locator(caching.UserProvidedCacheLocator):  # type: ignore[misc] # numba is untyped
    """In ``numba.config.CACHE_DIR``, whether or not it can be written: never beside the sources.

    The folder's name is a digest of this package's sources, so that its code is filed by module alone: numba's own also
    asks where a source lies and when it was written, and every other checkout of the same would compile them again.
    """

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        super().__init__(py_func, py_file)
        self._cache_path = str(Path(numba.config.CACHE_DIR) / py_func.__module__)

    def get_source_stamp(self) -> str:
        """Return what else must be the same: the content of a source that is not in the digest of the folder's name."""
        source = Path(self._py_file)
        return "" if source.is_relative_to(_PACKAGE) else hashlib.sha256(source.read_bytes()).hexdigest()

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator:
        return cls(py_func, py_file)

    def ensure_cache_path(self) -> None:
        Path(self.get_cache_path()).mkdir(mode=0o700, parents=True, exist_ok=True)


class _Library(JITCodeLibrary):  # type: ignore[misc] # numba is untyped
    """A library from disk; its bitcode is unpacked when another library first links with it."""

    _packed: bytes

    @classmethod
    def _unserialize(cls, codegen: Any, state: Any) -> _Library:  # noqa: ANN401 - numba is untyped
        name, _, (code, packed, symbols) = state
        library: _Library = codegen.create_library(name)
        library.enable_object_caching()
        library._set_compiled_object(code)
        library._packed = packed
        library._finalize_final_module()
        codegen._engine._defined_symbols |= symbols
        return library

    def _get_module_for_linking(self) -> Any:  # noqa: ANN401 - numba is untyped
        if not self._packed:
            raise RuntimeError(f"{self.name}: shipped without what other compiled code would link with")
        if self._shared_module is None:  # type: ignore[has-type] # numba is untyped
            self._shared_module = llvm.parse_bitcode(zlib.decompress(self._packed))
        return self._shared_module


@contextmanager
def _loading(codegen: Any) -> Iterator[None]:  # noqa: ANN401 - numba is untyped
    """Make numba use libraries of this kind; code that is compiled meanwhile would not be stored as one."""
    before = codegen._library_class
    codegen._library_class = _Library
    try:
        yield
    finally:
        codegen._library_class = before


class _Implementation(caching.CompileResultCacheImpl):  # type: ignore[misc] # numba is untyped
    _locator_classes = (_Locator,)

    def reduce(self, cres: Any) -> Any:  # noqa: ANN401 - numba is untyped
        """Return what is stored: numba's own, its bitcode packed, with the names of what it defines."""
        (name, _, (code, bitcode)), *rest = super().reduce(cres)
        module = cres.library._get_module_for_linking()
        symbols = [*module.functions, *module.global_variables]
        defined = frozenset(each.name for each in symbols if not each.is_declaration)
        uses_runtime = any(each.name.startswith(_RUNTIME) for each in symbols)
        library = (name, _PACKED, (code, zlib.compress(bitcode, 1), defined))
        *rest, called = rest
        environments = [(each.env_name, each.globals["__name__"], each.consts) for each in called]
        return (uses_runtime, library, *rest, environments)

    def rebuild(self, target_context: Any, payload: Any) -> Any:  # noqa: ANN401 - numba is untyped
        """Return what was stored, ready to be called."""
        uses_runtime, *rest, called = payload
        if uses_runtime:
            rtsys.initialize(target_context)
        with _loading(target_context.codegen()):
            return super().rebuild(target_context, [*rest, tuple(_environment(*each) for each in called)])


def _environment(name: str, module: str, constants: list[Any]) -> Any:  # noqa: ANN401 - numba is untyped
    """Return what compiled code knows of a function that it calls, numba's own without importing where they live."""
    known = lookup_environment(name)
    if known is not None:
        return known
    made = Environment(vars(sys.modules[module]) if module in sys.modules else {"__name__": module})
    made.consts[:] = constants
    made.env_name, Environment._memo[name] = name, made
    return made


class CheckedFiles(caching.IndexDataCacheFile):  # type: ignore[misc] # numba is untyped
    """numba's index and data files, each behind a digest of its content, and each the user's own or root's.

    A folder may have been open to others before it was the user's alone, or be changed for theirs later.
    """

    _are_users_own = True

    def _load_index(self) -> dict[Any, str]:
        try:
            version, stamp, overloads = self._read(Path(self._index_path))
        except OSError:
            return {}
        is_current = (version, stamp) == (self._version, self._source_stamp)
        return dict(overloads) if is_current else {}

    def _save_index(self, overloads: dict[Any, str]) -> None:
        self._write(self._index_path, (self._version, self._source_stamp, overloads))

    def _load_data(self, name: str) -> Any:  # noqa: ANN401 - numba is untyped
        return self._read(Path(self._data_path(name)))

    def _save_data(self, name: str, data: object) -> None:
        self._write(self._data_path(name), data)

    def _read(self, path: Path) -> Any:  # noqa: ANN401 - numba is untyped
        """Return what a file holds. Raises OSError, for numba a file that is not there, on one not to be run."""
        with path.open("rb") as file:
            if self._are_users_own and os.fstat(file.fileno()).st_uid not in (0, os.getuid()):
                _tell("owner", f"{path}: got a file of another user, expected one of yours; compiled again")
                raise OSError(f"{path}: another user's")
            content = file.read()
        digest, data = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(data).digest() != digest:
            _tell("damaged", f"{path}: got a damaged file, expected what was written; compiled again")
            raise OSError(f"{path}: damaged")
        return pickle.loads(data)  # noqa: S301 - this user's, or shipped with this package

    def _write(self, path: str, content: object) -> None:
        data = self._dump(content)
        with self._open_for_write(path) as file:
            file.write(hashlib.sha256(data).digest() + data)


class CodeCache(caching.FunctionCache):  # type: ignore[misc] # numba is untyped
    """A function's cache in a folder; a full disk costs the next run time, not this one."""

    _impl_class = _Implementation
    _files: type[CheckedFiles] = CheckedFiles

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(folder)
        try:
            super().__init__(function)
        finally:
            numba.config.CACHE_DIR = before
        files: Any = self._cache_file  # type: ignore[has-type] # numba is untyped
        self._cache_file = self._files(self._cache_path, self._impl.filename_base, files._source_stamp)

    def has_any(self, codegen: Any) -> bool:  # noqa: ANN401 - numba is untyped
        """Return whether code of the function, for any signature, is here for what this process generates code for.

        numba files code under the kind of CPU: what another machine with the same home folder compiled is of no use.
        """
        return any(
            self._index_key(key[0], codegen) == key and Path(self.cache_path, name).is_file()
            for key, name in self._cache_file._load_index().items()
        )

    def load_overload(self, sig: object, target_context: object) -> object:
        """Return what is stored for a signature, None: nothing. numba would first fill its tables, to compile."""
        started = time.thread_time()
        with self._guard_against_spurious_io_errors():
            found: object = self._load_overload(sig, target_context)
        _loading_s[0] += time.thread_time() - started
        return found

    def _save_overload(self, sig: object, data: object) -> None:
        try:
            super()._save_overload(sig, data)
        except OSError as error:
            _tell(
                "full",
                f"{self._cache_path}: got {error.strerror}, expected room for a file; compiled for this run only",
            )


def cache_for(function: Callable[..., Any], folder: Path | None) -> CodeCache | caching.NullCache:
    """Return a function's cache in a folder of ``private_folder``."""
    return caching.NullCache() if folder is None else CodeCache(function, folder)
