"""`python -m tidemark …` is the command `tidemark …`."""
import os
import sys

from . import Error, program

try:
    path = str(program())
except Error as error:
    sys.exit(f"tidemark: {error}")
os.execv(path, [path, *sys.argv[1:]])
