import os
import sys

from . import program

path = program()
if path is None:
    sys.exit("tidemark: the program tidemark is not installed in this environment")
os.execv(path, [path, *sys.argv[1:]])
