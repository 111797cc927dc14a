"""A notebook that records a cell and shows its report, in a real kernel or in IPython alone.

    python3 notebook.py TIDEMARK SIMGPU_LIBRARIES TORCH_DIRECTORY      exit 77 without IPython
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CELLS = ["import tidemark, standin_torch, torch\ntidemark.load()",
         'with tidemark.record("out"):\n    kept = torch.empty(8, 1024, 1024, device="cuda")',
         'tidemark.report("out")']


def shown_by_kernel():
    import nbclient
    import nbformat
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    output, = notebook.cells[-1].outputs
    return dict(output["data"])


def shown_by_shell():
    from IPython.core.interactiveshell import InteractiveShell
    shell = InteractiveShell.instance()
    for cell in CELLS:
        result = shell.run_cell(cell)
        result.raise_error()
    return shell.display_formatter.format(result.result)[0]


def inside():
    try:
        import ipykernel  # noqa: F401
        import nbclient  # noqa: F401
        ways = [shown_by_kernel, shown_by_shell]
    except ImportError:
        ways = [shown_by_shell]
    for way in ways:
        shutil.rmtree("out", ignore_errors=True)
        shown = way()
        assert shown["text/plain"].startswith("<tidemark report of out: 1 rank, peak 32.0 MiB"), shown
        assert "<td>32.0 MiB</td>" in shown["text/html"], shown
        assert "torch_program.py:" in shown["text/html"], shown
        print(way.__name__)


def main():
    tidemark, libraries, torch = (pathlib.Path(path).resolve() for path in sys.argv[1:4])
    python = next((path for path in (sys.executable, "/usr/bin/python3") if subprocess.run(
        [path, "-c", "import IPython"], capture_output=True).returncode == 0), None)
    if python is None:
        print("IPython is not installed")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        variables = {name: value for name, value in os.environ.items()
                     if not name.startswith(("TIDEMARK_", "CUDA_INJ"))}
        variables.update(LD_LIBRARY_PATH=str(libraries), XDG_CACHE_HOME=f"{folder}/cache",
                         HOME=folder, IPYTHONDIR=f"{folder}/ipython", STANDIN_TORCH=str(torch),
                         PATH=f"{tidemark.parent}:{os.environ['PATH']}",
                         PYTHONPATH=f"{ROOT / 'python'}:{HERE}", PYTHONDONTWRITEBYTECODE="1",
                         PYDEVD_DISABLE_FILE_VALIDATION="1",
                         TIDEMARK_CONTROL_DIR=f"{folder}/control")
        done = subprocess.run([python, HERE / "notebook.py", "--inside"], env=variables, cwd=folder,
                              timeout=280)
    sys.exit(done.returncode)


if __name__ == "__main__":
    inside() if sys.argv[1] == "--inside" else main()
