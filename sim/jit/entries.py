"""Functions that Python calls as machine code: found on disk or compiled, and called at their address.

numba would call them through a wrapper of its own library. Here the arguments are laid out word by word, as its
compiled functions pass them on: an array is seven words or more, a tuple is its members (``ArrayModel`` in
``numba.core.datamodel.models``). A function in the same machine code takes them from there
(``sim.jit.linking``). No reference is counted: entries keep no array and make none.
"""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from struct import Struct
from typing import Any, Final

import numpy as np

from sim.jit.code_cache import CodeFolder
from sim.jit.machine_code import place_of
from sim.jit.object_file import WORD_BYTES, CodePlace

_OUT: Final = ctypes.c_int64 * 2
"""What a function returns, and where it describes an error."""
_PROTOTYPE: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p)
_RETURNED: Final[dict[str, Callable[[Any], Any]]] = {
    "int64": lambda out: out[0],
    "bool": lambda out: out[0] & 0xFF != 0,
    "float64": lambda out: ctypes.c_double.from_buffer(out).value,
    "none": lambda _: None,
}
"""From what a function writes to what it returns."""
_OK: Final = (0, -2)
"""What a function's own return code is where it returns, and where it returns nothing."""
_PACKAGE: Final = Path(__file__).parent.parent
_loading_s = [0.0]
_hearers: list[Callable[[Entry], None]] = []


def loading_cpu_s() -> float:
    """Return the CPU seconds for which this process has loaded machine code until now."""
    return _loading_s[0]


def hear_of_compiles(hear: Callable[[Entry], None]) -> None:
    """Have ``hear`` called with each entry from now on, before it is compiled."""
    _hearers.append(hear)


class Entry:
    """A function that Python calls as machine code; ``num_compiled`` says for how many kinds of arguments it was made.

    ``pipeline``: returns numba's ``pipeline_class`` by which it is compiled, None: the usual one. ``folders``: returns
    where its code is looked for, in this order; what is compiled goes to the last.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        pipeline: Callable[[], Any] | None,
        folders: Callable[[], list[CodeFolder]],
    ) -> None:
        self.py_func, self._pipeline, self._folders = function, pipeline, folders
        self.__name__, self.__qualname__ = function.__name__, function.__qualname__
        self.__module__, self.__doc__ = function.__module__, function.__doc__
        self.num_compiled = 0
        self._known: dict[tuple[Any, ...], _Callable] = {}
        self._latest: tuple[Callable[[], Any], bytes, dict[tuple[type, ...], _Callable]] = (_nothing, b"", {})
        self._lock = threading.RLock()

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401 - those of the function
        """Call it; the GIL is released meanwhile. Raises what the function raises."""
        first, words, by_types = self._latest
        called = by_types.get(tuple(map(type, arguments))) if first() is arguments[0] else None
        if called is not None:
            return called(words + called.pack_numbers(*arguments[1:]))
        kinds, given = _laid_out(arguments)
        called = self._known.get(kinds) or self._found(arguments, kinds, given)
        words = called.pack(*given)
        self._remember(called, arguments, words)
        return called(words)

    def _remember(self, called: _Callable, arguments: tuple[Any, ...], words: bytes) -> None:
        """Keep the words of an array that comes first, before numbers alone: most often it comes again."""
        types = tuple(map(type, arguments))
        if isinstance(arguments[0], np.ndarray) and all(each in _FORMATS for each in types[1:]):
            first, _, known = self._latest
            by_types = {**(known if first() is arguments[0] else {}), types: called}
            num_words = len(words) // WORD_BYTES - len(types) + 1
            called.pack_numbers = Struct(called.format[num_words:]).pack
            self._latest = (weakref.ref(arguments[0]), words[: num_words * WORD_BYTES], by_types)

    def __reduce__(self) -> str:
        """Pickle by name, as functions are."""
        return self.__qualname__

    def prepare(self, *arguments: Any) -> _Callable:  # noqa: ANN401 - those of the function
        """Load or compile it for such arguments, without a call."""
        kinds, words = _laid_out(arguments)
        return self._known.get(kinds) or self._found(arguments, kinds, words)

    def address_for(self, *arguments: Any, returned: str) -> int:  # noqa: ANN401 - those of the function
        """Return where its machine code for such arguments lies; load or compile it.

        Raises TypeError where it returns another type than ``returned``.
        """
        called = self.prepare(*arguments)
        if called.returns != returned:
            raise TypeError(f"{self.__name__}: got {called.returns}, expected {returned} returned")
        return called.address

    def is_stored(self) -> bool:
        """Return whether its machine code, for any arguments, is on disk for this processor."""
        return any(folder.has_any(self._stem(folder)) for folder in self._folders())

    @property
    def num_loaded(self) -> int:
        """Return for how many kinds of arguments its code was found on disk by this process."""
        return len(self._known) - self.num_compiled

    # -- finding it ---------------------------------------------------------------------------------------------

    def _found(self, arguments: tuple[Any, ...], kinds: tuple[Any, ...], words: list[Any]) -> _Callable:
        with self._lock:
            if kinds not in self._known:
                found = self._loaded(kinds) or self._compiled(arguments, kinds)
                self._known[kinds] = _Callable(*found, words=words)
            return self._known[kinds]

    def _loaded(self, kinds: tuple[Any, ...]) -> tuple[CodePlace, str] | None:
        """Return where code from disk lies now, and what it returns; None: there is none that runs here."""
        started = time.thread_time()
        try:
            for folder in self._folders():
                stored = folder.load(f"{self._stem(folder)}.{_digest(_text(kinds))}")
                place = None if stored is None else place_of(stored)
                if stored is not None and place is not None:
                    return place, stored.returns
        finally:
            _loading_s[0] += time.thread_time() - started
        return None

    def _compiled(self, arguments: tuple[Any, ...], kinds: tuple[Any, ...]) -> tuple[CodePlace, str]:
        from sim.jit.linking import compiled

        for hear in _hearers:
            hear(self)
        place, stored = compiled(self.py_func, self._pipeline and self._pipeline(), arguments)
        self.num_compiled += 1
        *_, own = self._folders()
        own.save(f"{self._stem(own)}.{_digest(_text(kinds))}", stored)
        return place, stored.returns

    def _stem(self, folder: CodeFolder) -> str:
        """Return how the names of its files begin: module, function, for which processor, of which foreign source."""
        source = Path(self.py_func.__code__.co_filename)
        foreign = "" if source.is_relative_to(_PACKAGE) else sha256(source.read_bytes()).hexdigest()
        return f"{self.__module__}/{self.__qualname__}.{_digest(repr((folder.processor(), foreign)))}"


class _Callable:
    """Machine code for one kind of arguments; ``address``: where it lies. ``pack``: from words to how it takes them."""

    def __init__(self, place: CodePlace, returns: str, *, words: list[Any]) -> None:
        self.address, self.returns, self._returned = place.address, returns, _RETURNED[returns]
        self._function = _PROTOTYPE(place.of_words)
        self.format = "".join(_FORMATS[type(word)] for word in words)
        self.pack = self.pack_numbers = Struct(self.format).pack

    def __call__(self, words: bytes) -> Any:  # noqa: ANN401 - what the function returns
        """Call it with all its words."""
        out = _OUT()
        code = self._function(words, out)
        if code not in _OK:
            raise _error(out[1])
        return self._returned(out)


def _nothing() -> object:
    """Return what is no argument."""
    return _nothing


_FORMATS: Final[dict[type, str]] = {int: "q", bool: "q", float: "d"}
"""How each word of the arguments is packed."""
_NUMBERS: Final = ((bool, (bool, np.bool_)), (int, (int, np.integer)), (float, (float, np.floating)))
"""As what a number is taken."""


def _laid_out(arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[Any]]:
    """Return of what kinds arguments are, and their words."""
    kinds: list[Any] = []
    words: list[Any] = []
    _lay_out(arguments, kinds, words)
    return tuple(kinds), words


def _lay_out(values: tuple[Any, ...], kinds: list[Any], words: list[Any]) -> None:
    """Add of what kinds values are, and the words that compiled code takes them as."""
    for value in values:
        if type(value) in _FORMATS:
            kinds.append(type(value))
            words.append(value)
        elif isinstance(value, np.ndarray):
            array = np.ndarray.view(value, np.ndarray)  # of records each attribute takes a microsecond
            flags = array.flags
            kinds.append((array.dtype, array.ndim, flags.c_contiguous, flags.writeable, flags.aligned))
            words += (0, 0, array.size, array.itemsize, array.ctypes.data, *array.shape, *array.strides)
        elif isinstance(value, tuple):
            kinds.append((type(value), len(value)))
            _lay_out(value, kinds, words)
        else:
            kind = next((each for each, among in _NUMBERS if isinstance(value, among)), None)
            if kind is None:
                raise TypeError(f"got {type(value).__name__}, expected an array, a number or a tuple of such")
            kinds.append(kind)
            words.append(kind(value))


def _text(kinds: tuple[Any, ...]) -> str:
    """Return kinds as a text that another process finds for the same ones."""
    return repr([each.__name__ if isinstance(each, type) else tuple(map(str, each)) for each in kinds])


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def _error(described: int) -> Exception:
    """Return the exception that compiled code describes."""
    from sim.jit.linking import exception_at

    return exception_at(described)
