"""An installed tree works, also after it was moved: it records a program, reports it, draws it, checks
itself, and completes command lines.

    python3 installed.py TIDEMARK BUILD SIMGPU_LIBRARIES RUN_OUT LEAK
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

BUILD, SIMGPU, RUN_OUT, LEAK = sys.argv[2:6]


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

    # Where every job is armed by another copy of the library, `run` still records, and once.
    armed = {**environment, "TIDEMARK_ARM": "1",
             "CUDA_INJECTION64_PATH": str(pathlib.Path(BUILD) / "injector/libtidemark.so")}
    done = subprocess.run([tidemark, "run", "-o", place / "armed", "--", LEAK, "100"], env=armed,
                          capture_output=True, text=True)
    check_equal(len(list((place / "armed").glob("*.tmk"))), 1, f"traces of an armed program: {done.stderr}")
    check(re.search(r"^tidemark: creep: .*grows by 1\.0 MiB each time", done.stderr, re.M), f"{done.stderr}: ends with the finding")
    check(re.search(r"^tidemark: {3}-> ", done.stderr, re.M), f"{done.stderr}: and with what to do")

    # The doctor records on a simulated GPU where there is no other.
    (place / "tmp").mkdir()
    own_tmp = {**os.environ, "TMPDIR": str(place / "tmp")}
    doctor = subprocess.run([tidemark, "doctor"], env=own_tmp, capture_output=True, text=True)
    check(re.search(r"^ok .*a test program was recorded on .* GPU and read back$", doctor.stdout, re.M),
          f"doctor: {doctor.stdout}")
    check(doctor.stdout.splitlines()[-1].startswith("Next: tidemark "), f"doctor's last line: {doctor.stdout}")
    check_equal(list((place / "tmp").iterdir()), [], "doctor's files")
    library = tree / "lib/libtidemark.so"
    library.rename(tree / "lib/elsewhere.so")
    broken = subprocess.run([tidemark, "doctor"], env=own_tmp, capture_output=True, text=True)
    check_equal(broken.returncode, 1, "doctor without the library: exit status")
    check("libtidemark.so is neither" in broken.stdout, f"doctor without the library: {broken.stdout}")
    (tree / "lib/elsewhere.so").rename(library)
    python = {**os.environ, "PYTHONPATH": str(tree / "share/tidemark/python"), "PATH": "/usr/bin:/bin"}
    check_equal(output_of(sys.executable, "-B", "-m", "tidemark", "version", env=python),
                output_of(tidemark, "version"), "python -m tidemark")

    # What the documentation links to is there.
    pages = sorted((tree / "share/doc/tidemark").rglob("*.md"))
    check(len(pages) > 10, f"installed pages: {pages}")
    for page in pages:
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8")):
            check("://" in link or (page.parent / link).exists(), f"{page.name} links to {link}")

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
                ["html", "perfetto", "sqlite", "csv", "parquet", "snapshot"], "values of an option")
    check_equal(output_of(tidemark, "complete", "report", ""), "", "paths are the shell's")
    check_equal(output_of(tidemark, "complete", "run", "--", "python", "--"), "",
                "the program's own options are not ours")
    completion = tree / "share/bash-completion/completions/tidemark"
    answer = output_of("bash", "-c", f"""PATH={tree}/bin:$PATH; . {completion}
        COMP_WORDS=(tidemark rep); COMP_CWORD=1; _tidemark; echo "${{COMPREPLY[@]}}" """)
    check_equal(answer.split(), ["report"], "bash completes a command")

finish()
