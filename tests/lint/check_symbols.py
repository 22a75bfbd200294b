#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A build with CUDA and one without must differ in nothing but the backend.

    check_symbols.py backend --real OBJECT… --unavailable OBJECT… --users OBJECT…
        Both backends give what the rest of the library takes: each symbol of unavailable.cpp is in the
        real backend, and each symbol of the real one that other objects use is in unavailable.cpp.
    check_symbols.py command CUDA_COMMAND CPU_COMMAND
        Beyond what the command of the CPU build takes from shared libraries, that of the CUDA build
        takes CUDA's and NCCL's symbols only, what the static CUDA runtime needs of the C library, and
        what cuDNN's headers use of the C++ library, which the CPU build links too.
"""
import argparse
import re
import subprocess
import sys

# From the shared libraries of a CUDA build, by their names (cudart is linked statically).
OF_CUDA = re.compile(r"^(cuda|__cuda|cublas|nccl)")
# dlopen, clocks and threads: what libcudart_static.a brings along. Streams: cuDNN's frontend.
OF_C_AND_CPP = re.compile(r"@(GLIBC|GCC|GLIBCXX|CXXABI)_")


def symbols_of(files, *options):
    """(type, name) of each; nm also names files and archive members, which are no symbols."""
    run = subprocess.run(["nm", "-P", *options, *files], capture_output=True, text=True, check=True)
    for line in run.stdout.splitlines():
        words = line.split()
        if len(words) >= 2 and len(words[1]) == 1:
            yield words[1], words[0]


def defined_in(files):
    """What others can link to and nobody else defines: templates and inline functions (W, V, u) are out."""
    return {name for kind, name in symbols_of(files, "-g", "--defined-only") if kind in "TDBR"}


def readable(names):
    run = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    return sorted(run.stdout.splitlines())


def backend_faults(real, unavailable, users):
    real, unavailable = defined_in(real), defined_in(unavailable)
    used = {name for kind, name in symbols_of(users, "-u")}
    for name in readable(unavailable - real):
        yield f"unavailable.cpp has a symbol that the CUDA backend lacks: {name}"
    for name in readable((real & used) - unavailable):
        yield f"the library uses a symbol that unavailable.cpp lacks: {name}"
    if not real or not unavailable:
        yield "a backend without symbols: wrong objects?"


def command_faults(cuda, cpu):
    taken = [{name for _, name in symbols_of([command], "-D", "-u")} for command in (cuda, cpu)]
    for name in sorted(taken[0] - taken[1]):
        if not OF_CUDA.match(name) and not OF_C_AND_CPP.search(name):
            yield f"{cuda} takes {name}, which {cpu} does not"


def main():
    parser = argparse.ArgumentParser()
    checks = parser.add_subparsers(dest="check", required=True)
    backend = checks.add_parser("backend")
    for option in ("--real", "--unavailable", "--users"):
        backend.add_argument(option, nargs="+", required=True)
    command = checks.add_parser("command")
    command.add_argument("cuda")
    command.add_argument("cpu")
    arguments = parser.parse_args()
    if arguments.check == "backend":
        faults = list(backend_faults(arguments.real, arguments.unavailable, arguments.users))
    else:
        faults = list(command_faults(arguments.cuda, arguments.cpu))
    print("\n".join(faults) or "the symbols agree")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
