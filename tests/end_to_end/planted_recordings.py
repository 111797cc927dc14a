"""Recordings of programs with a planted cause, or none (samples/planted): each gets its finding
with the line that planted it, nothing false, and its number of steps.

    python3 planted_recordings.py TIDEMARK samples/planted
"""
import pathlib
import sys

sys.path[:0] = [sys.argv[2], str(pathlib.Path(__file__).resolve().parents[1] / "support")]
from harness import DATA, TIDEMARK, check, check_equal, finish  # noqa: E402
from score import remarks, score_folder  # noqa: E402

folders = sorted((DATA / "planted").glob("seed*"))
check(len(folders) >= 40, f"{len(folders)} recordings")
for folder in folders:
    truth, judgement, why = score_folder(TIDEMARK, folder)
    check_equal(why, None, folder.name)
    check_equal(list(remarks(judgement)), [], f"{folder.name} ({truth['cause'] or 'healthy'})")
finish()
