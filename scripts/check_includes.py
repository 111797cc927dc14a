#!/usr/bin/env python3
"""Checks that includes only point down, between the top-level folders and between sub-folders, and
that code inside a host process leaves the environment alone.

    scripts/check_includes.py [ROOT]     exit 0 and a summary line, or 1 and one line per violation
"""
import pathlib
import re
import sys

# Top-level folder -> the other folders that it may include from.
MAY_USE = {
    "abi": set(),
    "proto": set(),
    "bridge": {"proto"},
    "injector": {"abi", "proto", "bridge"},
    "collector": {"proto", "bridge"},
    "analysis": {"proto"},
    "summary": {"proto", "collector", "analysis"},
    "export": {"proto", "analysis"},
    "viewer": {"proto", "collector", "analysis", "summary", "export"},
    "web": {"proto", "export", "viewer"},
    "cli": {"proto", "collector", "analysis", "summary", "export"},
    "simgpu": {"abi"},
    "samples": {"abi", "proto"},
}
# Sub-folders from the bottom up: each may include from itself and from those listed before it.
# "." is the folder itself. Folders that are not listed here have no ordered sub-folders.
LAYERS = {
    "proto": ["base", ".", "write", "read"],
    "injector": ["process", "trace", "recorder", "driver", "stacks", "sampling", "marks", "nccl",
                 "nvtx", "python", "torch", "cupti", "capture", "control", "."],
    "collector": ["pickle", "snapshot", "recover", "job", ".", "launch", "attach/inject", "attach",
                  "serve"],
    "analysis": ["columns", "events", "history", "names", "load", "steps", "insight", "insight/card",
                 "insight/lives", "insight/categories", "passes", "ranks", ".", "whatif/allocator",
                 "whatif", "plan/program", "plan/laws", "plan",
                 "findings", "findings/growth", "findings/causes", "findings/causes/card",
                 "findings/rules", "findings/rules/card", "stacked", "report"],
    "export": [".", "report", "plan", "whatif", "page", "perfetto", "tables", "snapshot"],
    "viewer": ["model", "model/timeline", "model/map", "model/trace", "model/flame",
               "model/tables", "model/ranks", "model/compare", "model/stack", "widgets",
               "panels/timeline", "panels/map", "panels/flame", "panels/tables", "panels/ranks",
               "panels/compare", "panels/details", "panels/stack", "panels/findings",
               "panels/dialogs", "app"],
}
# The injector links only these parts of proto/; these must not use the recording parts of
# collector/.
INJECTOR_LINKS = {"proto", "proto/base", "proto/write"}
RECORDING = {"collector/launch", "collector/attach", "collector/attach/inject", "collector/serve"}
READS_ONLY = {"viewer": RECORDING, "summary": RECORDING}
MOST_FILES = 25  # in one sub-folder of a folder listed in LAYERS
SUFFIXES = (".h", ".cpp", ".cu", ".cuh")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)

# The host may call setenv() while our threads run, so in its process one file reads the environment
# and one sets variables, each on a thread of the host.
IN_HOST = {"injector", "bridge", "abi", "proto"}
ENVIRONMENT = re.compile(r"\b(?:(?:secure_)?getenv|environ|setenv|unsetenv|putenv|clearenv)\b")
MAY_USE_ENVIRONMENT = {"injector/process/environment.cpp": {"environ"},
                       "injector/nccl/wiring.cpp": {"setenv"}}
COMMENT = re.compile(r"//.*")


def layer_of(folder, path):
    """The sub-folder of `folder` that contains `path`, "." for the folder itself."""
    return path.parent.relative_to(folder).as_posix()


def violations_of(root, source, text):
    folder = source.parts[0]
    for target_text in INCLUDE.findall(text):
        target = pathlib.PurePosixPath(target_text)
        target_folder = target.parts[0]
        if target_folder not in MAY_USE or len(target.parts) == 1:
            continue
        if not (root / target).exists() and not target_text.endswith(".pb.h"):
            yield f"{source}: {target} does not exist"
            continue
        if target_folder != folder and target_folder not in MAY_USE[folder]:
            yield f"{source}: {folder}/ must not include {target}"
        if folder == "injector" and target_folder == "proto" and str(target.parent) not in INJECTOR_LINKS:
            yield f"{source}: the injector links proto/base and proto/write only, not {target}"
        if str(target.parent) in READS_ONLY.get(folder, ()):
            yield f"{source}: {folder}/ reads traces only and must not include {target}"
        if target_folder == folder and folder in LAYERS:
            order = LAYERS[folder]
            own, other = layer_of(folder, source), layer_of(folder, target)
            if own in order and other in order and order.index(other) > order.index(own):
                yield f"{source}: {own} is below {other} and must not include {target}"


def environment_uses(source, text):
    if source.parts[0] not in IN_HOST:
        return
    allowed = MAY_USE_ENVIRONMENT.get(str(source), set())
    for name in sorted(set(ENVIRONMENT.findall(COMMENT.sub("", text))) - allowed):
        yield f"{source}: {name} races with the host; use process_environment"


def violations(root):
    for folder in MAY_USE:
        sizes = {}
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            source = pathlib.PurePosixPath(path.relative_to(root).as_posix())
            layer = layer_of(folder, source)
            sizes[layer] = sizes.get(layer, 0) + 1
            text = path.read_text(encoding="utf-8")
            yield from violations_of(root, source, text)
            yield from environment_uses(source, text)
        for layer, size in sizes.items():
            if folder not in LAYERS:
                continue
            if layer not in LAYERS[folder]:
                yield f"{folder}/{layer}: not in LAYERS of scripts/check_includes.py"
            if size > MOST_FILES:
                yield f"{folder}/{layer}: {size} source files, at most {MOST_FILES}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = list(violations(root.resolve()))
    for text in found:
        print(text)
    layers = sum(len(order) for order in LAYERS.values())
    print(f"includes: {len(MAY_USE)} folders, {layers} layers, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
