"""What the program says about itself: ranges, marks, steps and names of blocks."""
import contextlib
from typing import Any, Iterator, List

from . import _library


def _bytes(text: str) -> bytes:
    return str(text).encode("utf-8", "replace")


class _Range(contextlib.ContextDecorator):
    def __init__(self, text: str) -> None:
        self._text = text
        self._open: List[int] = []

    def _recreate_cm(self) -> "_Range":  # one for each call of a decorated function
        return _Range(self._text)

    def __enter__(self) -> None:
        library = _library.find()
        self._open.append(library.tidemark_range_begin(_bytes(self._text)) if library else 0)

    def __exit__(self, *_: Any) -> None:
        begun = self._open.pop()
        library = _library.find()
        if library is not None:
            library.tidemark_range_end(begun)


def range(name: str) -> _Range:
    """A named range on the timeline: `with tidemark.range("validation"):` or a decorator."""
    return _Range(name)


def mark(name: str) -> None:
    """Marks this instant on the timeline."""
    library = _library.find()
    if library is not None:
        library.tidemark_mark(_bytes(name))


def step(number: int) -> None:
    """Ends step `number`. The report then counts memory by these steps."""
    library = _library.find()
    if library is not None:
        library.tidemark_step(int(number))


def name(what: Any, label: str) -> None:
    """Labels the GPU memory of a tensor, of a module's parameters and buffers, of everything in a
    list, tuple or dict, or of the allocation at an address (int), until it is freed.

    Reports and the viewer show the label. A name given while nothing is recorded is not kept.
    """
    library = _library.find()
    for address in _addresses(what):
        if library is not None:
            library.tidemark_name(address, _bytes(label))


def _addresses(what: Any) -> Iterator[int]:
    if isinstance(what, int):
        yield what
    elif isinstance(what, dict):
        yield from _addresses(list(what.values()))
    elif isinstance(what, (list, tuple)):
        for part in what:
            yield from _addresses(part)
    elif hasattr(what, "parameters") and hasattr(what, "buffers"):
        yield from _addresses([*what.parameters(), *what.buffers()])
    elif hasattr(what, "untyped_storage"):
        local = what.to_local() if hasattr(what, "to_local") else what  # the part of a DTensor here
        if local.is_cuda:
            try:
                yield local.untyped_storage().data_ptr()
            except RuntimeError:
                pass  # a tensor without memory, as under torch.compile
    elif hasattr(what, "__cuda_array_interface__"):
        yield what.__cuda_array_interface__["data"][0]
    else:
        raise TypeError(f"a tensor, module, collection of them or address is needed, "
                        f"not {type(what).__name__}")
