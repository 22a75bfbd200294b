#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of faults: each is injected before a real S3 server (or a disk, or a process), one row each.

    store_faults_test.py [--quick] [--rows 1,12-16] [--table FILE]

--quick: the rows that a test run has time for. A row ends as "ok", "FAILED", or "not here" with the reason,
which is counted on its own. LOCKSTEP_TEST_SERVICE names the folder of a running tests/services/ceph-rgw.
"""
import argparse
import pathlib
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from chaos import Chaos  # noqa: E402
from s3_server import s3_server  # noqa: E402
from store_faults import answers, at_rest, crashes, credentials, jobs, notices, resources  # noqa: E402, F401
from store_faults.table import ROWS, Missing, World  # noqa: E402


def wanted(text):
    """1,3-5 as a set."""
    numbers = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


def try_row(world, row):
    """(how it ended, what it says, seconds)"""
    began = time.monotonic()
    try:
        said = row.check(world)
        ended, words = "ok", row.outcome + (f" ({said})" if said else "")
    except Missing as missing:
        ended, words = "not here", str(missing)
    except (AssertionError, OSError, KeyError, IndexError, ValueError) as error:
        traceback.print_exc()
        ended, words = "FAILED", f"{type(error).__name__}: {error}".splitlines()[0][:200]
    world.chaos.rules()
    world.clear()
    return ended, words, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=wanted)
    parser.add_argument("--table", type=pathlib.Path)
    options = parser.parse_args()
    rows = sorted((row for row in ROWS if (not options.quick or row.quick) and
                   (not options.rows or int(row.number) in options.rows)), key=lambda row: row.number)  # fmt: skip
    lines = ["| # | fault | result | what was seen | seconds |", "|---|---|---|---|---|"]
    counts = {}
    with tempfile.TemporaryDirectory(prefix="lockstep faults ") as name, s3_server() as server:
        folder = pathlib.Path(name)
        with Chaos(server["AWS_ENDPOINT_URL"], folder / "chaos.log") as chaos:
            world = World(folder, server, chaos)
            for row in rows:
                ended, words, seconds = try_row(world, row)
                counts[ended] = counts.get(ended, 0) + 1
                lines.append(f"| {row.number} | {row.fault} | {ended} | {words} | {seconds:.1f} |")
                print(lines[-1], flush=True)
    summary = ", ".join(f"{count} {ended}" for ended, count in sorted(counts.items()))
    print(f"{len(rows)} rows: {summary}")
    if options.table:
        options.table.write_text("\n".join([*lines, "", f"{len(rows)} rows: {summary}", ""]))
    sys.exit(1 if counts.get("FAILED") or not rows else 0)


if __name__ == "__main__":
    main()
