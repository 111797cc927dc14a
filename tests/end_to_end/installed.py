"""An installed tree works, also after it was moved: it records a program, reports it, draws it, and
completes command lines.

    python3 installed.py TIDEMARK BUILD SIMGPU_LIBRARIES RUN_OUT
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from harness import check, check_equal, finish  # noqa: E402

BUILD, SIMGPU, RUN_OUT = sys.argv[2:5]


def output_of(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    check_equal(done.returncode, 0, f"{command}: {done.stderr}")
    return done.stdout


with tempfile.TemporaryDirectory() as scratch:
    place = pathlib.Path(scratch)
    output_of("cmake", "--install", BUILD, "--prefix", place / "first")
    tree = (place / "first").rename(place / "moved")
    tidemark = tree / "bin" / "tidemark"
    (place / "cards").mkdir()
    environment = {**os.environ, "LD_LIBRARY_PATH": SIMGPU, "SIMGPU_DIR": str(place / "cards")}
    said = json.loads(output_of(tidemark, "run", "-q", "-o", place / "out", "--", RUN_OUT,
                                env=environment))
    report = json.loads(output_of(tidemark, "report", place / "out", "--json"))
    check_equal(report["ranks"][0]["devices"][0]["driver_peak"]["bytes"], said["taken_bytes"],
                "peak of what the installed tidemark recorded")
    if (tree / "bin" / "tidemark-view").exists():
        output_of(tidemark, "view", place / "out", "--screenshot", place / "picture.png")
        check((place / "picture.png").stat().st_size > 10000, "a picture by the installed viewer")

    # The commands, as the program, its manual and the completion know them.
    commands = [line.split("\t")[0] for line in output_of(tidemark, "complete", "").splitlines()]
    check("run" in commands and "report" in commands, f"{commands} are completed")
    help_text = output_of(tidemark, "--help")
    manual = (tree / "share/man/man1/tidemark.1").read_text()
    check_equal(sorted(commands), sorted(re.findall(r"^  ([a-z]+) {2,}", help_text, re.M)[0:len(commands)]),
                "commands of the completion and of --help")
    check_equal(sorted(commands), sorted(re.findall(r"^\.It Cm (\w+)$", manual, re.M)),
                "commands of the completion and of the manual")
    options = output_of(tidemark, "complete", "export", "--")
    check("--format\t" in options and "--time\t" in options, "options are completed")
    check_equal(output_of(tidemark, "complete", "export", "--format", "").split(),
                ["perfetto", "sqlite", "csv", "snapshot"], "values of an option")
    check_equal(output_of(tidemark, "complete", "report", ""), "", "paths are the shell's")
    check_equal(output_of(tidemark, "complete", "run", "--", "python", "--"), "",
                "the program's own options are not ours")
    completion = tree / "share/bash-completion/completions/tidemark"
    answer = output_of("bash", "-c", f"""PATH={tree}/bin:$PATH; . {completion}
        COMP_WORDS=(tidemark rep); COMP_CWORD=1; _tidemark; echo "${{COMPREPLY[@]}}" """)
    check_equal(answer.split(), ["report"], "bash completes a command")

finish()
