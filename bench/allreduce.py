#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduce in place on one host against MPI_Allreduce, gloo, and the bare algorithm, in turns.

  bench/allreduce.py [--ranks 2,4] [--sizes 4096,65536,…] [--minutes 5]

Needs the release build and `scripts/setup --all`. All programs are started once and answer one size
at a time; those not asked wait. A turn is: probe, one of ours, probe, one of theirs, probe. The
probe is a cache line's round trip between two cores: NEAR (below 0.28 µs) or FAR. On a virtual
machine this changes within seconds and moves every figure by a factor, so a turn whose probes differ
is dropped and only ratios within a turn are kept.

"bare" is the same additions by threads, with no library around them: what is left of our time beside
it the library costs. "private" is they again, each thread on memory of its own and waiting for nobody:
the limit, below which no algorithm comes that adds in place. Ranks must not outnumber cores.

Prints a line of JSON a turn and then a table: median of their time over ours (p10–p90, turns).
"""

import argparse
import collections
import contextlib
import itertools
import json
import os
import pathlib
import queue
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILT = ROOT / "build/bench"
FAR_FROM_US = 0.28
MIB = 1 << 20
SIZES = [4096, 65536, MIB, 4 * MIB, 25 * MIB, 64 * MIB, 256 * MIB]
RING = {"coll_tuned_use_dynamic_rules": 1, "coll_tuned_allreduce_algorithm": 5,
        "coll_tuned_allreduce_algorithm_segmentsize": MIB}  # fmt: skip
THREADS = {"bare": [], "private": ["private"]}  # arguments of bare_sum, whose threads never yield
# What is wanted of two ranks, in either state.
GOALS = {"mpi": {4096: 3, 65536: 8, MIB: 6, 4 * MIB: 6, 25 * MIB: 4, 64 * MIB: 6, 256 * MIB: 7},
         "mpi-ring": {25 * MIB: 3, 64 * MIB: 3},
         "bare": {},
         "private": {25 * MIB: 1 / 1.5, 64 * MIB: 1 / 1.2, 256 * MIB: 1 / 1.2},
         "gloo": {4096: 300, 65536: 100, MIB: 25, 4 * MIB: 15, 25 * MIB: 10, 64 * MIB: 12}}  # fmt: skip


class Server:
    """A program that answers a line with a line."""

    def __init__(self, name, command, **environment):
        self.name = name
        self.answers = queue.Queue()
        # Open MPI keeps sockets under TMPDIR, whose path must be short.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": "/tmp", **environment}
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=environment)  # fmt: skip
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put(None)

    def ask(self, question):
        self.process.stdin.write(f"{question}\n")
        self.process.stdin.flush()
        answer = self.answers.get(timeout=120)
        if answer is None:
            sys.exit(f"{self.name} ended with {self.process.wait(10)}")
        return answer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            self.process.wait(30)


def build():
    BUILT.mkdir(parents=True, exist_ok=True)
    peers = ROOT / "bench/peers"
    for compiler, name in [("mpicc -O3", "mpi_allreduce"), ("cc -O2 -pthread", "round_trip"),
                           ("cc -O3 -march=native -pthread", "bare_sum")]:  # fmt: skip
        subprocess.run([*compiler.split(), peers / f"{name}.c", "-o", BUILT / name], check=True)


def ours(ranks, options):
    return Server("lockstep", [ROOT / "scripts/mpirun-local", "-n", ranks, options.lockstep, "bench", "allreduce",
                               "--sizes", "-", "--repeats", options.repeats])  # fmt: skip


def theirs(name, ranks, options):
    if name == "gloo":
        # Its buffers ask for huge pages too.
        return Server(name, [options.torchrun, "--standalone", "--nproc-per-node", ranks,
                             ROOT / "bench/peers/torch_allreduce.py", options.repeats],
                      GLOO_SOCKET_IFNAME="lo", THP_MEM_ALLOC_ENABLE="1")  # fmt: skip
    if name in THREADS:
        return Server(name, [BUILT / "bare_sum", ranks, options.repeats, *THREADS[name]])
    arguments = ["huge"] if name == "mpi-huge" else []
    words = ["mpirun", "-n", ranks]
    if ranks > len(os.sched_getaffinity(0)):
        words += ["--oversubscribe"]
    for key, value in RING.items() if name == "mpi-ring" else ():
        words += ["--mca", key, value]
    return Server(name, [*words, BUILT / "mpi_allreduce", options.repeats, *arguments],
                  OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")  # fmt: skip


def one_turn(probe, mine, other, size, swapped):
    """Their time over ours, and the state of the machine; None where the state changed."""
    trips = [float(probe.ask(""))]
    seconds = {}
    for server in (other, mine) if swapped else (mine, other):
        line = json.loads(server.ask(size))
        assert line["bytes"] == size, line
        seconds[server] = line["seconds"]
        trips.append(float(probe.ask("")))
    states = {"FAR" if trip >= FAR_FROM_US else "NEAR" for trip in trips}
    return {"peer": other.name, "bytes": size, "state": states.pop() if len(states) == 1 else None,
            "ratio": seconds[other] / seconds[mine], "ours_s": seconds[mine], "peer_s": seconds[other],
            "round_trip_us": trips}  # fmt: skip


def measure(ranks, options):
    """The turns that count."""
    kept, dropped = [], 0
    with contextlib.ExitStack() as stack:
        probe = stack.enter_context(Server("round_trip", [BUILT / "round_trip"]))
        mine = stack.enter_context(ours(ranks, options))
        others = [stack.enter_context(theirs(name, ranks, options)) for name in options.peers
                  if name not in THREADS or ranks <= len(os.sched_getaffinity(0))]
        for server, size in itertools.product([mine, *others], options.sizes):
            server.ask(size)  # allocates and checks
        deadline = time.monotonic() + 60 * options.minutes
        for number in itertools.count():
            for size in options.sizes:
                # Large sizes take seconds a turn; small ones get as much time.
                slice_ends = time.monotonic() + options.slice
                while True:
                    for other in others:
                        turn = {"ranks": ranks, **one_turn(probe, mine, other, size, number % 2 == 1)}
                        print(json.dumps(turn), flush=True)
                        kept += [turn] if turn["state"] else []
                        dropped += not turn["state"]
                    if time.monotonic() > min(deadline, slice_ends):
                        break
            if time.monotonic() > deadline:
                return kept, dropped


def size_text(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size / 1024:g} KiB"


def quantiles(values):
    values = sorted(values)
    return [values[round(q * (len(values) - 1))] for q in (0.1, 0.9)]


def print_tables(ranks, turns, dropped, options):
    print(f"\n{ranks} ranks: {len(turns)} turns, {dropped} more dropped because the state changed")
    for peer in options.peers:
        groups = collections.defaultdict(list)
        for turn in turns:
            if turn["peer"] == peer:
                groups[turn["bytes"], turn["state"]].append(turn)
        print(f"\n| {peer}, {ranks} ranks | state | × its speed | p10–p90 | turns | ours | theirs | goal |")
        print("|-|-|-|-|-|-|-|-|")
        for size, state in sorted(groups):
            group = groups[size, state]
            ratio = statistics.median(turn["ratio"] for turn in group)
            low, high = quantiles([turn["ratio"] for turn in group])
            times = [statistics.median(turn[key] for turn in group) for key in ("ours_s", "peer_s")]
            goal = GOALS.get(peer, {}).get(size) if ranks == 2 else None
            verdict = f"≥ {goal:.3g}: {'met' if ratio >= goal else 'missed'}" if goal else ""
            print(f"| {size_text(size)} | {state} | {ratio:.3g} | {low:.3g}–{high:.3g} | {len(group)} | "
                  f"{times[0] * 1e6:.4g} µs | {times[1] * 1e6:.4g} µs | {verdict} |")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def numbers(text):
        return [int(word) for word in text.split(",")]

    parser.add_argument("--ranks", type=numbers, default=[2, 4])
    parser.add_argument("--sizes", type=numbers, default=SIZES, help="bytes")
    parser.add_argument("--peers", type=lambda text: text.split(","), default=list(GOALS),
                        help="of mpi, mpi-ring, bare, private, gloo, and mpi-huge: buffers that ask for huge pages")
    parser.add_argument("--minutes", type=float, default=5, help="for each number of ranks")
    parser.add_argument("--slice", type=float, default=1, help="seconds that a size gets a round, or one turn")
    parser.add_argument("--repeats", type=int, default=3, help="timed refills a sample, which is their median")
    parser.add_argument("--lockstep", default=ROOT / "build/release/bin/lockstep")
    parser.add_argument("--torchrun", default=ROOT / "build/venv/bin/torchrun")
    options = parser.parse_args()

    build()
    results = [(ranks, *measure(ranks, options)) for ranks in options.ranks]
    for ranks, turns, dropped in results:
        print_tables(ranks, turns, dropped, options)


if __name__ == "__main__":
    main()
