"""tidemark shows where a GPU job's memory went.

The programs are native; this package only finds them:

    python -m tidemark run -- python train.py
"""
import os
import pathlib
import shutil
import sysconfig

__all__ = ["program"]


def program(name="tidemark"):
    """The path of an installed program, `tidemark` or `tidemark-view`, or None."""
    schemes = [None, f"{os.name}_user"]
    places = [sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
              for scheme in schemes]
    # In a tree unpacked from a tarball, this file is in share/tidemark/python/tidemark.
    places.append(pathlib.Path(__file__).resolve().parents[4] / "bin")
    return shutil.which(name, path=os.pathsep.join(map(str, places))) or shutil.which(name)
