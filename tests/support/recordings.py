"""Every recorded trace of the tree: single files, directories of ranks, snapshots. Those of planted
causes are many, and judged by planted_recordings.py.
"""
import glob
import os


def recordings(root):
    """Paths to pass to tidemark; the traces of one job are given as their directory."""
    paths = glob.glob(os.path.join(root, "tests/data/**/*.pickle.gz"), recursive=True)
    for top in ("samples/traces", "tests/data"):
        for directory, _, names in os.walk(os.path.join(root, top)):
            traces = [os.path.join(directory, n) for n in names if n.endswith(".tmk")]
            # These directories hold independent traces, named after what they show. In the others,
            # the traces of a job are named after their process.
            loose = os.path.basename(directory) in ("torch", "scenarios")
            paths.extend(traces if loose else [directory] if traces else [])
    return sorted(path for path in paths if "/planted/" not in path)
