"""The report on a trace, as objects."""
import html
import json
import os
import pathlib
import shutil
import subprocess
import sysconfig
import types
from typing import Any, Iterator, List, Optional, Union

from ._library import NAME, Error


def program(name: str = "tidemark") -> pathlib.Path:
    """The path of an installed program, `tidemark` or `tidemark-view`."""
    found = shutil.which(name, path=os.pathsep.join(_places())) or shutil.which(name)
    if found is None:
        raise Error(f"the command {name} was not found; install it or add it to PATH")
    return pathlib.Path(found)


def _places() -> Iterator[str]:
    # pip puts programs here; the other scheme is that of `pip install --user`.
    for scheme in (None, f"{os.name}_user"):
        yield sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
    # In an installed tree, this file is in share/tidemark/python/tidemark.
    parents = pathlib.Path(__file__).resolve().parents
    if len(parents) > 4:
        yield str(parents[4] / "bin")


def library_path() -> Optional[pathlib.Path]:
    """libtidemark.so next to the installed program; None if there is none."""
    try:
        folder = program().resolve().parent
    except Error:
        return None
    places = [folder.parent / "lib" / NAME, folder / "injector" / NAME, folder / NAME]
    return next((place for place in places if place.exists()), None)


class Report:
    """What `tidemark report --json` says; its fields are attributes (docs/report.md).

    report.ranks[0].devices[0].allocated_peak.bytes, report.findings[0].summary …
    """

    def __init__(self, text: str) -> None:
        self.__dict__.update(json.loads(text, object_hook=lambda pairs:
                                        types.SimpleNamespace(**pairs)).__dict__)

    @property
    def devices(self) -> List[Any]:
        """The devices of all ranks."""
        return [device for rank in self.ranks for device in rank.devices]

    @property
    def peak_bytes(self) -> int:
        """The most that one device had allocated: by PyTorch, or by the driver without PyTorch."""
        return max((peak_of(device) for device in self.devices), default=0)

    def __getattr__(self, name: str) -> Any:  # for type checkers; existing fields do not come here
        raise AttributeError(f"the report has no {name}")

    def __repr__(self) -> str:
        def counted(things: List[Any], what: str) -> str:
            return f"{len(things)} {what}{'' if len(things) == 1 else 's'}"

        return (f"<tidemark report of {self.source.path}: {counted(self.ranks, 'rank')}, "
                f"peak {size_text(self.peak_bytes)}, {counted(self.findings, 'finding')}>")

    def _repr_html_(self) -> str:
        rows = []
        for rank in self.ranks:
            for d in rank.devices:
                peaks = (d.allocated_peak, d.reserved_peak, d.driver_peak, d.device_used_peak)
                rows.append([str(rank.rank) if rank.rank >= 0 else "", f"{d.device} {d.name}",
                             *(size_text(peak.bytes) if peak.bytes else "" for peak in peaks)])
        parts = [f"<p><b>{html.escape(self.source.path)}</b></p>",
                 _table(["rank", "device", "allocated", "reserved", "driver", "card used"], rows)]
        for finding in self.findings:
            advice = "".join(f"<li>{html.escape(a.action)}</li>" for a in finding.advice)
            parts.append(f"<p><b>{html.escape(finding.severity)}</b>: "
                         f"{html.escape(finding.summary)}</p><ul>{advice}</ul>")
        for d in self.devices:
            if d.by_stack:
                parts.append(f"<p>Largest at the peak of device {d.device}</p>")
                parts.append(_table(["bytes", "blocks", "allocated by"],
                                    [[size_text(s.bytes), str(s.count), s.line or "(no stack)"]
                                     for s in d.by_stack[:10]]))
        return "\n".join(parts)


def report(path: Union[str, "os.PathLike[str]"], *options: str) -> Report:
    """Reads a trace, a directory of a job or a snapshot. Options are those of `tidemark report`:
    report("out", "--at", "oom")."""
    done = subprocess.run([str(program()), "report", os.fspath(path), "--json", *options],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
    if done.returncode != 0:
        raise Error(done.stderr.strip() or f"tidemark report ended with {done.returncode}")
    return Report(done.stdout)


def peak_of(device: Any) -> int:
    """What `Report.peak_bytes` counts of a device."""
    return int((device.allocated_peak if device.at_totals is not None else device.driver_peak).bytes)


def size_text(size: int) -> str:
    """1610612736 -> "1.5 GiB"."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _table(head: List[str], rows: List[List[str]]) -> str:
    def line(cell: str, texts: List[str]) -> str:
        return "<tr>" + "".join(f"<{cell}>{html.escape(text)}</{cell}>" for text in texts) + "</tr>"
    return "\n".join(["<table>", line("th", head), *(line("td", row) for row in rows), "</table>"])
