"""Where the memory of this process's GPUs went: record it, mark what happens, read the report.

    import tidemark

    with tidemark.record("out"):
        train()
    tidemark.report("out")

The recorder is a native library, libtidemark.so. It is in the process if that was started with
`tidemark run` or `tidemark run --arm`, if it was attached to, or after `tidemark.load()`. Elsewhere
every function here does nothing and returns None or an empty list, so calls may stay in the code.
"""
from ._control import DeviceStats, Recording, load, record, seal, snapshot, start, stats, stop
from ._library import Error
from ._marks import mark, name, range, step
from ._report import Report, program, report

__version__ = "0.2.0"

__all__ = ["DeviceStats", "Error", "Recording", "Report", "load", "mark", "name", "program",
           "range", "record", "report", "seal", "snapshot", "start", "stats", "step", "stop"]
