#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every benchmark runs on two ranks, says that it has checked its results, and prints sane lines."""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import BIN, MPIRUN, clean_environment  # noqa: E402

MODEL = ["--model.preset", "none", "--model.layers", 2, "--model.hidden", 32, "--model.heads", 2,
         "--model.context", 16, "--model.vocab", 256, "--batch.global", 8, "--batch.micro", 2]  # fmt: skip


def bench(*words, stdin=""):
    command = [MPIRUN, "-n", "2", BIN, "bench", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100,
                          input=stdin, env=clean_environment())  # fmt: skip


def lines_of(*words, stdin=""):
    run = bench(*words, stdin=stdin)
    assert run.returncode == 0, run.stderr
    lines = list(map(json.loads, run.stdout.splitlines()))
    for line in lines:
        assert line["bench"] == words[0] and line["ranks"] == 2 and line["checked"] is True, line
        numbers = [value for value in line.values() if isinstance(value, float)]
        assert all(map(math.isfinite, numbers)), line
        for key in [key.removesuffix("_p10") for key in line if key.endswith("_p10")]:
            assert 0 < line[key + "_p10"] <= line[key] <= line[key + "_p90"], line
    print(f"{words[0]}: {len(lines)} lines")
    return lines


def check_shards():
    whole, shared = (lines_of("step", *MODEL, "--repeats", 2, "--zero", zero)[0] for zero in (0, 1))
    assert shared["loss"] == whole["loss"], (shared, whole)
    assert sum(shared["optimizer_bytes"]) == whole["optimizer_bytes"][0], (shared, whole)


def main():
    check_shards()
    listed = [4096, 65536, 12, 262144]
    lines = lines_of("allreduce", "--sizes", ",".join(map(str, listed)), "--repeats", 3)
    assert [line["bytes"] for line in lines] == listed, lines
    assert [line["calls"] for line in lines] == [50, 1, 50, 1], lines
    lines_of("allreduce", "--sizes", 4096, "--repeats", 3, "--reduction", "fast")
    asked = lines_of("allreduce", "--sizes", "-", "--repeats", 2, stdin="65536\n4096\n65536\n")
    assert [line["bytes"] for line in asked] == [65536, 4096, 65536], asked
    for wrong in ["4096,6", "4096,,64", "4k"]:
        refused = bench("allreduce", "--sizes", wrong)
        assert refused.returncode == 78 and "is not a size" in refused.stderr, refused.stderr
        assert refused.stderr.count("lockstep: ") == 1, refused.stderr
    assert len(lines_of("gemm", "--rows", 32, "--max_width", 256, "--repeats", 3)) == 2
    step = lines_of("step", "--repeats", 3, *MODEL)[0]
    assert step["tokens"] == 8 * 16 and step["passes_s"] < step["seconds_p90"], step
    overlap = lines_of("overlap", "--rounds", 2, "--repeats", 2, "--backend", "mpi", *MODEL)[0]
    assert overlap["hidden"] is None or overlap["hidden"] <= 1.5, overlap
    with tempfile.TemporaryDirectory(prefix="lockstep bench ") as name:
        words = ["checkpoint", "--bytes", 1 << 20, "--repeats", 2, "--store", f"file:{name}/store"]
        lines_of(*words)
        again = bench(*words)
        assert again.returncode == 78 and "commits" in again.stderr, again.stderr
    uneven = bench("overlap", *MODEL[:-1], 8)  # one leaf
    assert uneven.returncode == 78 and "leaves" in uneven.stderr, uneven.stderr
    assert uneven.stderr.count("lockstep: ") == 1, uneven.stderr
    unknown = bench("alreduce")
    assert unknown.returncode == 78 and "did you mean allreduce?" in unknown.stderr, unknown.stderr


if __name__ == "__main__":
    main()
