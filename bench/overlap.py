#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much of the communication hides behind the backward pass on a slow link, against PyTorch DDP over gloo.

  bench/overlap.py [--rounds 3] [--rate 1gbit] [--layers 8 --hidden 512 …]

Two hosts (network namespaces, see tests/support/hosts.py) with one rank each, joined by a veth pair that a
token bucket throttles; each rank computes on one core. hidden = (t_off - t_on) / (t_off - t_compute): steps that
reduce behind the backward pass, during it, and not at all. Both sides use buckets of --bucket-mib. Needs the
release build, `scripts/setup --all`, and root or user namespaces. Prints a line of JSON a run and a summary.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/support"))
from hosts import Hosts, enter_user_namespace  # noqa: E402


def show(line):
    print(json.dumps(line), flush=True)
    return line


def ours(hosts, options):
    words = [ROOT / "build/release/bin/lockstep", "bench", "overlap", "--rounds", 1, "--repeats", options.repeats,
             "--model.preset", "none", "--bucket_bytes", int(options.bucket_mib * 2**20),
             "--batch.global", 2 * options.batch, "--batch.micro", options.batch]  # fmt: skip
    for key in ("layers", "hidden", "heads", "context", "vocab"):
        words += [f"--model.{key}", getattr(options, key)]
    run = hosts.run(1, words, capture_output=True, text=True, timeout=900)
    if run.returncode != 0:
        sys.exit(f"lockstep bench overlap ended with {run.returncode}:\n{run.stderr[-2000:]}")
    line = show(json.loads(run.stdout.strip().splitlines()[-1]))
    assert line["checked"] is True, line
    return {"on": line["overlap_s"], "off": line["no_overlap_s"], "compute": line["compute_s"],
            "cpu": line["communication_cpu_s"]}  # fmt: skip


def theirs_with(hosts, options, reduce):
    words = [ROOT / "build/venv/bin/python", ROOT / "bench/peers/torch_ddp_gpt.py", "--reduce", reduce,
             "--repeats", options.repeats, "--bucket-mib", options.bucket_mib,
             "--batch-global", 2 * options.batch, "--batch-micro", options.batch]  # fmt: skip
    for key in ("layers", "hidden", "heads", "context", "vocab"):
        words += [f"--{key}", getattr(options, key)]
    ranks = []
    for index, host in enumerate(hosts.hosts):
        environment = {**os.environ, "RANK": str(index), "WORLD_SIZE": "2", "MASTER_ADDR": hosts.address(0),
                       "MASTER_PORT": "29400", "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}  # fmt: skip
        ranks.append(subprocess.Popen([*host.enter(), *map(str, words)], env=environment, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE))  # fmt: skip
    outputs = [rank.communicate(timeout=900) for rank in ranks]
    for rank, (_, errors) in zip(ranks, outputs, strict=True):
        if rank.returncode != 0:
            sys.exit(f"{words[1]} ended with {rank.returncode}:\n{errors[-2000:]}")
    return show(json.loads(outputs[0][0].strip().splitlines()[-1]))


def theirs(hosts, options):
    lines = {name: theirs_with(hosts, options, name) for name in ("overlap", "after", "none")}
    return {"on": lines["overlap"]["seconds"], "off": lines["after"]["seconds"], "compute": lines["none"]["seconds"],
            "cpu": lines["overlap"]["cpu_s"] - lines["none"]["cpu_s"]}  # fmt: skip


def summary(name, rounds):
    hidden = [(r["off"] - r["on"]) / (r["off"] - r["compute"]) for r in rounds]
    at = {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}
    return (f"{name}: {statistics.median(hidden):.2f} of the communication hidden ({min(hidden):.2f} to {max(hidden):.2f}, "
            f"{len(rounds)} rounds); a step takes {at['on']:.3f} s with overlap, {at['off']:.3f} s without, "
            f"{at['compute']:.3f} s without communication, which takes {at['cpu']:.3f} s of CPU on both ranks together")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5, help="timed steps a variant and round")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--bucket-mib", type=float, default=4)
    parser.add_argument("--batch", type=int, default=8, help="sequences a rank")
    for key, value in {"layers": 8, "hidden": 512, "heads": 8, "context": 256, "vocab": 256}.items():
        parser.add_argument(f"--{key}", type=int, default=value)
    options = parser.parse_args()
    if not enter_user_namespace():
        sys.exit("bench/overlap.py: needs ip, tc, nsenter, unshare, mpirun, and root or user namespaces")
    with Hosts(2, options.rate) as hosts:
        rounds = [(ours(hosts, options), theirs(hosts, options)) for _ in range(options.rounds)]
    print(summary("Lockstep", [mine for mine, _ in rounds]))
    print(summary("PyTorch DDP/gloo", [peer for _, peer in rounds]))
    ratios = sorted(peer["on"] / mine["on"] for mine, peer in rounds)
    print(f"steps with overlap: {statistics.median(ratios):.2f} × PyTorch's per second")


if __name__ == "__main__":
    main()
