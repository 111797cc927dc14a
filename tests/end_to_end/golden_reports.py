"""Compares the text of reports with stored copies (tests/data/golden).

    python3 golden_reports.py TIDEMARK            compares
    python3 golden_reports.py TIDEMARK --update   stores the output (read it before you commit)
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import DATA, SNAPSHOTS, check, finish, run  # noqa: E402

GOLDEN = DATA / "golden"
CASES = ("default", "expandable", "late", "graphs", "oom_fraction", "annotated", "cpp_stacks")

for case in CASES:
    result = run("report", SNAPSHOTS / f"{case}.pickle.gz")
    text = result.stdout.replace(str(SNAPSHOTS) + "/", "")
    kept = GOLDEN / f"{case}.txt"
    if "--update" in sys.argv:
        GOLDEN.mkdir(exist_ok=True)
        kept.write_text(text)
    check(result.returncode == 0 and kept.exists() and kept.read_text() == text,
          f"{case}: the report differs from {kept.name}:\n{text}")

finish()
