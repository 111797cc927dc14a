#!/usr/bin/env python3
"""Runs a program as several ranks on one card:  launch.py RANKS PROGRAM [ARGUMENT …]"""
import os
import socket
import subprocess
import sys


def main():
    ranks = int(sys.argv[1])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for rank in range(ranks):
        env = dict(os.environ, RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(ranks),
                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
        children.append(subprocess.Popen([sys.executable, *sys.argv[2:]], env=env))
    return max(abs(child.wait()) for child in children)


if __name__ == "__main__":
    sys.exit(main())
