"""A pytest plugin: `@pytest.mark.gpu_memory(max_peak="2GiB")` fails a test that needs more."""
import re
import tempfile
import warnings
from typing import Any, List, Union

import pytest

from . import _report, load, record, report

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def parse_size(text: Union[int, str]) -> int:
    """"2GiB" -> 2147483648; numbers are bytes."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", str(text))
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError(f"gpu_memory: {text!r} is not a size like 2GiB or 500MB")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def pytest_configure(config: Any) -> None:
    config.addinivalue_line(
        "markers", "gpu_memory(max_peak): fail the test if a GPU had more than max_peak allocated "
        "at any time in it (by PyTorch, or by the driver without PyTorch)")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: List[Any]) -> None:
    for item in items:
        marker = item.get_closest_marker("gpu_memory")
        if marker is not None:
            item.runtest = _measured(item.runtest, *marker.args, **marker.kwargs)


def _measured(run: Any, max_peak: Union[int, str]) -> Any:
    limit = parse_size(max_peak)

    def runtest() -> None:
        with tempfile.TemporaryDirectory(prefix="tidemark-") as folder:
            load()
            with record(folder) as recording:
                run()
            if recording.trace is None:
                warnings.warn("gpu_memory was not checked: nothing could be recorded",
                              pytest.PytestWarning)
                return
            measured = report(recording.trace)
        worst = max(measured.devices, key=_report.peak_of, default=None)
        if worst is not None and _report.peak_of(worst) > limit:
            pytest.fail(_explain(worst, max_peak), pytrace=False)

    return runtest


def _explain(device: Any, max_peak: Union[int, str]) -> str:
    lines = [f"device {device.device} had {_report.size_text(_report.peak_of(device))} allocated, "
             f"more than max_peak={max_peak}. The largest at that time:"]
    lines += [f"{_report.size_text(share.bytes):>10}  {share.line or '(no stack)'}"
              for share in device.by_stack[:5]]
    return "\n".join(lines)
