#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the registers, shared memory and stack of each CUDA kernel, as ptxas reported them in the build.

Fails where a kernel spills registers to memory, or where a kernel source was built without a report.
    list_kernels.py [--table] [BUILD]      default: build/cuda
        --table   a row a kernel instead, for docs/gpu.md: registers by architecture
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\S+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def reports_of(build):
    """(source, report) of every kernel source that the build knows."""
    root = pathlib.Path(__file__).resolve().parent.parent
    for unit in json.loads((build / "compile_commands.json").read_text("utf-8")):
        # Tests compile some of the sources for the host too.
        if unit["file"].endswith(".cu") and "-x cu " in unit["command"]:
            named = re.search(r" -o (\S+)", unit["command"]).group(1).replace("/", "-")
            source = pathlib.Path(unit["file"])
            if source.is_relative_to(root):
                source = source.relative_to(root)
            yield source.as_posix(), build / "ptxas" / f"{named}.txt"


def kernels_of(report):
    kernel = None
    for line in report.read_text("utf-8").splitlines():
        if found := ENTRY.search(line):
            kernel = {"name": found.group(1), "sm": found.group(2), "shared": 0}
        elif kernel and (found := STACK.search(line)):
            kernel["stack"], stores, loads = map(int, found.groups())
            kernel["spills"] = stores + loads
        elif kernel and (found := USED.search(line)):
            kernel["registers"] = int(found.group(1))
            if found := SHARED.search(line):
                kernel["shared"] = int(found.group(1))
            yield kernel
            kernel = None


def readable(names):
    run = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True)
    return run.stdout.splitlines()


def print_list(kernels):
    print(f"{'registers':>9} {'shared':>7} {'stack':>6} {'spills':>6}  sm      kernel")
    for kernel in kernels:
        print(
            f"{kernel['registers']:9} {kernel['shared']:7} {kernel['stack']:6} {kernel['spills']:6}"
            f"  {kernel['sm']:7} {kernel['readable']}"
        )


def print_table(kernels):
    rows = collections.defaultdict(dict)
    for kernel in kernels:
        rows[kernel["readable"].rsplit("::", 1)[-1]][kernel["sm"]] = kernel
    architectures = sorted({kernel["sm"] for kernel in kernels}, key=lambda sm: int(sm.split("_")[1]))
    print("| kernel | " + " | ".join(architectures) + " | shared bytes | stack | spills |")
    print("|---|" + "--:|" * (len(architectures) + 3))
    for name, by in sorted(rows.items()):
        registers = [str(by[sm]["registers"]) if sm in by else "" for sm in architectures]
        most = [str(max(kernel[key] for kernel in by.values())) for key in ("shared", "stack", "spills")]
        print(f"| {name} | " + " | ".join(registers + most) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("build", nargs="?", default="build/cuda", type=pathlib.Path)
    options = parser.parse_args()
    build = options.build
    faults = []
    all_kernels = []
    reports = sorted(reports_of(build))
    if not reports:
        faults.append(f"{build} has no kernels: configure it with -DLOCKSTEP_CUDA=ON")
    for source, report in reports:
        if not report.exists():
            faults.append(f"{source}: no report ({report}); build it again")
            continue
        kernels = list(kernels_of(report))
        if not kernels:
            faults.append(f"{source}: no kernel in its report ({report})")
        for kernel, name in zip(kernels, readable([kernel["name"] for kernel in kernels])):
            all_kernels.append({**kernel, "readable": name})
            if kernel["spills"]:
                faults.append(f"{source}: {name} spills {kernel['spills']} bytes on {kernel['sm']}")
    (print_table if options.table else print_list)(all_kernels)
    if all_kernels and not options.table:
        most = max(kernel["registers"] for kernel in all_kernels)
        spills = sum(kernel["spills"] > 0 for kernel in all_kernels)
        print(f"kernels: {len(all_kernels)}, registers at most {most}, {spills} with spills")
    for fault in faults:
        print(fault, file=sys.stderr)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
