#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Refuses an include that goes up: core -> collectives -> optim -> runtime -> tools.

Inside runtime: store -> {data, checkpoint}; nn and cluster know none of them; only trainer sees all.
    check_layers.py ROOT
"""
import pathlib
import re
import sys

# What each place may include, beside itself.
MAY_INCLUDE = {
    "core": set(),
    "collectives": {"core"},
    "optim": {"core", "collectives"},
    "nn": {"core", "collectives"},
    "store": {"core"},
    "data": {"core", "collectives", "store"},
    "checkpoint": {"core", "collectives", "store"},
    "cluster": {"core", "collectives"},
    "trainer": {"core", "collectives", "optim", "nn", "store", "data", "checkpoint", "cluster"},
}
# Public headers of runtime, by the part that they belong to.
RUNTIME_HEADERS = {
    "module": "nn", "layers": "nn", "gpt2": "nn", "loss": "nn", "generate": "nn",
    "object_store": "store",
    "corpus": "data", "token_stream": "data", "data_loader": "data", "samples": "data",
    "checkpoint": "checkpoint", "checkpoint_tools": "checkpoint", "safetensors": "checkpoint",
    "preemption": "cluster", "run_folder": "cluster", "outcome": "cluster",
    "trainer": "trainer", "train_options": "trainer",
}  # fmt: skip
PUBLIC_ONLY = {"tools", "examples", "bench", "bindings", "lockstep.h"}  # that is all headers in one
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]')


def place_of(path):
    """The layer of a file or include path; None for one that is not ours."""
    parts = pathlib.PurePosixPath(path).parts
    if parts[:2] == ("include", "lockstep"):
        parts = parts[1:]
    if parts == ("lockstep", "lockstep.h"):
        return "lockstep.h"
    if parts[0] == "lockstep" and len(parts) > 2:
        if parts[1] == "runtime":
            return RUNTIME_HEADERS.get(pathlib.PurePosixPath(parts[2]).stem, f"unlisted:{parts[2]}")
        return parts[1]
    if parts[0] == "runtime" and len(parts) > 2:
        return parts[1]
    return parts[0] if len(parts) > 1 and parts[0] in {*MAY_INCLUDE, *PUBLIC_ONLY} else None


def faults_of(root):
    for folder in ("include", "core", "collectives", "optim", "runtime", *sorted(PUBLIC_ONLY)):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in {".h", ".cpp", ".cu"}:
                continue
            name = path.relative_to(root).as_posix()
            here = place_of(name)
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
                found = INCLUDE.match(line)
                there = place_of(found.group(1)) if found else None
                if there is None or there == here:
                    continue
                if here in PUBLIC_ONLY:
                    fine = found.group(1).startswith("lockstep/")
                else:
                    fine = there in MAY_INCLUDE.get(here, set())
                if not fine:
                    yield f"{name}:{number}: {here} must not include {found.group(1)} ({there})"


if __name__ == "__main__":
    faults = list(faults_of(pathlib.Path(sys.argv[1])))
    print("\n".join(faults) or "includes go one way")
    sys.exit(1 if faults else 0)
