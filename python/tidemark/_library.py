"""Finds libtidemark.so in this process."""
import ctypes
import os
import time
from typing import Optional

NAME = "libtidemark.so"
_SECONDS_BETWEEN = 0.1  # searching the library path takes tens of microseconds

class Error(RuntimeError):
    """tidemark could not do what it was asked to."""


_found: Optional[ctypes.PyDLL] = None
_next_search = 0.0


def find() -> Optional[ctypes.PyDLL]:
    """The library if it is loaded, otherwise None. The CUDA driver may load it at any time."""
    global _next_search
    if _found is not None or time.monotonic() < _next_search:
        return _found
    try:
        return use(NAME, os.RTLD_NOLOAD)
    except OSError:
        _next_search = time.monotonic() + _SECONDS_BETWEEN
        return None


def use(path: str, mode: int = 0) -> ctypes.PyDLL:
    """Loads the library from this path. OSError says why not."""
    global _found
    # PyDLL: its functions take less than a microsecond, so the GIL is not released for them.
    library = ctypes.PyDLL(path, mode=mode | os.RTLD_LAZY)
    try:
        library.tidemark_range_begin.argtypes = [ctypes.c_char_p]
        library.tidemark_range_begin.restype = ctypes.c_uint64
        library.tidemark_range_end.argtypes = [ctypes.c_uint64]
        library.tidemark_mark.argtypes = [ctypes.c_char_p]
        library.tidemark_step.argtypes = [ctypes.c_uint64]
        library.tidemark_name.argtypes = [ctypes.c_uint64, ctypes.c_char_p]
        for function in (library.tidemark_range_end, library.tidemark_mark, library.tidemark_step,
                         library.tidemark_name):
            function.restype = None
    except AttributeError as error:
        raise OSError(f"{path} is older than this package: {error}") from None
    _found = library
    return library
