"""Makes a wheel from an installed tree. The same tree gives the same bytes.

    python3 wheel.py TREE VERSION ARCH README OUT

pip puts the programs into bin/, the library and what belongs to it into lib/, and the Python package
into site-packages; the programs find the library relative to themselves.
"""
import base64
import hashlib
import os
import pathlib
import sys
import time
import zipfile

SUMMARY = "Shows where a GPU job's memory went"


def metadata(version, readme):
    # The README's relative links lead nowhere outside the repository, so only its beginning is used.
    beginning = readme.split("\n![", 1)[0].strip()
    return f"""Metadata-Version: 2.1
Name: tidemark
Version: {version}
Summary: {SUMMARY}
License: Apache-2.0
Platform: linux
Keywords: gpu,cuda,memory,profiler,pytorch
Classifier: Development Status :: 4 - Beta
Classifier: Environment :: GPU :: NVIDIA CUDA
Classifier: Intended Audience :: Developers
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Software Development :: Debuggers
Requires-Python: >=3.9
Description-Content-Type: text/markdown

{beginning}
"""


def files_of(tree, version):
    """Yields (name in the wheel, content, mode) of what comes from the tree."""
    data = f"tidemark-{version}.data"
    info = f"tidemark-{version}.dist-info"
    for path in sorted(tree.rglob("*")):
        if not path.is_file():
            continue
        if path.is_symlink():
            raise SystemExit(f"{path}: a wheel has no links")
        name = path.relative_to(tree).as_posix()
        mode = path.stat().st_mode & 0o777
        if name.startswith("bin/"):
            name = f"{data}/scripts/{name[len('bin/'):]}"
        elif name.startswith("share/tidemark/python/"):
            name = name[len("share/tidemark/python/"):]
        elif name.startswith("share/doc/tidemark/licences/"):
            name = f"{info}/licenses/{name[len('share/doc/tidemark/licences/'):]}"
        elif name.startswith("share/doc/"):
            continue  # the documentation is larger than the programs, and pip shows it to nobody
        else:
            name = f"{data}/data/{name}"
        yield name, path.read_bytes(), mode


def record_line(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def write(tree, version, arch, readme, out, when):
    tag = f"py3-none-manylinux_2_28_{arch}"
    info = f"tidemark-{version}.dist-info"
    files = sorted(files_of(tree, version))
    files.append((f"{info}/METADATA", metadata(version, readme).encode(), 0o644))
    files.append((f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: tidemark {version}\n"
                  f"Root-Is-Purelib: false\nTag: {tag}\n".encode(), 0o644))
    files.append((f"{info}/entry_points.txt", b"[pytest11]\ntidemark = tidemark.pytest_plugin\n", 0o644))
    record = "".join(record_line(name, content) for name, content, _ in files)
    files.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), 0o644))
    path = out / f"tidemark-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content, mode in files:
            entry = zipfile.ZipInfo(name, time.gmtime(when)[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, whatever made it: external_attr holds a mode
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content, compresslevel=9)
    return path


if __name__ == "__main__":
    place, its_version, its_arch, its_readme, destination = sys.argv[1:6]
    print(write(pathlib.Path(place), its_version, its_arch,
                pathlib.Path(its_readme).read_text(encoding="utf-8"), pathlib.Path(destination),
                int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))))
