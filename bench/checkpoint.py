#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Durable saves, loads and background saves against PyTorch Distributed Checkpoint, in turns.

  bench/checkpoint.py [--rounds 5] [--ranks 2] [--bytes 268435456] [--folder build/bench | --image FILE]

Needs the release build and `scripts/setup --all`. Both sides hold the same state on every rank and
write it once, on the same disk, each run into a fresh folder that is removed afterwards. Each save
is removed before the next, and the first does not count: virtual disks take several times as long
where nobody has written before, and give freed space back. `--image` (as root) is without that: an
ext4 in a file of 4 GiB that is written first. A save ends when files and folders are synced; ours includes the
checksums. Loads fill all of the state on every rank, and are of files just written, which the page cache
holds: no disk is read. Ours also checks every byte.

Each round runs both sides once, one after the other, and gives one ratio of medians. Prints a line
of JSON a run and a summary.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
GOALS = {"save_s": 2, "load_s": 1}


def last_line(command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=900,
                         env=environment)  # fmt: skip
    if run.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {run.returncode}:\n{run.stderr[-2000:]}")
    line = json.loads(run.stdout.strip().splitlines()[-1])
    assert line["checked"] is True, line
    print(json.dumps(line), flush=True)
    return line


def in_fresh_folder(options, side):
    folder = options.folder / f"checkpoint {side} {os.getpid()}"
    sizes = ["--bytes", options.bytes, "--repeats", options.repeats]
    if side == "lockstep":
        command = [ROOT / "scripts/mpirun-local", "-n", options.ranks, options.lockstep, "bench", "checkpoint",
                   "--store", f"file:{folder}", *sizes]  # fmt: skip
    else:
        command = [options.torchrun, "--standalone", "--nproc-per-node", options.ranks,
                   ROOT / "bench/peers/torch_dcp.py", folder, *sizes]  # fmt: skip
    options.folder.mkdir(parents=True, exist_ok=True)
    os.sync()  # what others have written is not our business
    try:
        return last_line(command)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def spread(values, digits=".2f"):
    values = sorted(values)
    low, high = (values[round(q * (len(values) - 1))] for q in (0.1, 0.9))
    return f"{statistics.median(values):{digits}} (p10 {low:{digits}}, p90 {high:{digits}})"


@contextlib.contextmanager
def mounted(image):
    """A folder on an ext4 in `image`, whose space the disk below has allocated."""

    def run(*command):
        return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout.strip()

    folder = image.with_suffix(".mounted")
    folder.mkdir()
    with contextlib.ExitStack() as undo:
        undo.callback(folder.rmdir)
        undo.callback(image.unlink, missing_ok=True)
        with image.open("xb") as file:
            for _ in range(1024):
                file.write(os.urandom(4 << 20))
            os.fsync(file.fileno())
        run("mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", image)
        device = run("losetup", "--find", "--show", "--direct-io=on", image)
        undo.callback(run, "losetup", "--detach", device)
        run("mount", "-o", "nodiscard,noatime", device, folder)
        undo.callback(run, "umount", folder)
        yield folder


def compare(options):
    rounds = []
    for number in range(options.rounds):
        order = ["lockstep", "torch"] if number % 2 == 0 else ["torch", "lockstep"]
        lines = {side: in_fresh_folder(options, side) for side in order}
        assert lines["lockstep"]["bytes"] == lines["torch"]["bytes"], lines
        rounds.append(lines)

    def median(side, key):
        return statistics.median(lines[side][key] for lines in rounds)

    print(f"\n{options.ranks} ranks, {options.bytes / 1e6:.0f} MB, {options.rounds} rounds; × is DCP's time over ours")
    for key, name in [("save_s", "save"), ("load_s", "load, page cache warm"), ("background_s", "background save"),
                      ("stall_s", "stall of it")]:  # fmt: skip
        ratio = [lines["torch"][key] / lines["lockstep"][key] for lines in rounds]
        goal = GOALS.get(key)
        verdict = f"; goal ≥ {goal}: {'met' if statistics.median(ratio) >= goal else 'missed'}" if goal else ""
        seconds = f"{median('lockstep', key):.3g} s against {median('torch', key):.3g} s"
        print(f"{name}: {spread(ratio)} ×; {seconds}{verdict}")
    for side in ("lockstep", "torch"):
        ratio = [lines[side]["stall_s"] / lines[side]["copy_s"] for lines in rounds]
        print(f"stall over memcpy of the bytes it copies, {side}: {spread(ratio)}; memcpy {median(side, 'copy_s'):.3g} s")
    ratio = [lines["lockstep"]["stall_s"] / lines["torch"]["copy_s"] for lines in rounds]
    print(f"our stall over memcpy of the whole state on every rank: {spread(ratio)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--bytes", type=int, default=256 << 20, help="of the state")
    parser.add_argument("--repeats", type=int, default=8, help="saves and loads a run")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/bench", help="on the disk in question")
    parser.add_argument("--image", type=pathlib.Path, help="a new file on the disk in question")
    parser.add_argument("--lockstep", default=ROOT / "build/release/bin/lockstep")
    parser.add_argument("--torchrun", default=ROOT / "build/venv/bin/torchrun")
    options = parser.parse_args()
    if not options.image:
        return compare(options)
    with mounted(options.image) as options.folder:
        compare(options)


if __name__ == "__main__":
    main()
