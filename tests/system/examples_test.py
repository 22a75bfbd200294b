#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every example prints what its first lines promise; the handwritten GPT has the bits of the trainer."""
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import BIN, MPIRUN, SOURCE, clean_environment, train  # noqa: E402

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
TOLERANCE = 0.1  # another CPU has other bits


def promised(path):
    """The command and the lines that it prints, from the comment at the top."""
    comment = [line[3:] for line in path.read_text().splitlines() if line.startswith("//   ")]
    words = [line.strip() for line in comment]
    return words[0], words[1:]


def run(command, run_folder):
    # Word by word: paths may have spaces.
    places = {"build/release/bin": str(pathlib.Path(BIN).parent), "RUN": str(run_folder)}
    words = shlex.split(command)
    for name, place in places.items():
        words = [word.replace(name, place) for word in words]
    done = subprocess.run(words, cwd=SOURCE, capture_output=True, text=True, check=False, timeout=120,
                          stdin=subprocess.DEVNULL, env=clean_environment())  # fmt: skip
    assert done.returncode == 0, (command, done.returncode, done.stderr)
    return done.stdout.splitlines()


def assert_like(lines, expected):
    assert len(lines) == len(expected), (lines, expected)
    for line, want in zip(sorted(lines), sorted(expected), strict=True):
        assert NUMBER.sub("#", line) == NUMBER.sub("#", want), (line, want)
        for a, b in zip(NUMBER.findall(line), NUMBER.findall(want), strict=True):
            assert abs(float(a) - float(b)) <= TOLERANCE * abs(float(b)), (line, want)


def gpt(ranks, folder):
    return [MPIRUN, "-n", str(ranks), str(pathlib.Path(BIN).parent / "03_gpt"), f"text:{SOURCE}/include", str(folder)]


def check_gpt(folder, lines):
    options = {"run": folder / "train", "model.preset": "gpt2-tiny", "data.source": f"text:{SOURCE}/include",
               "steps": 40, "optim.lr": 1e-3, "schedule.warmup": 10, "log.every": 10, "eval.every": 0}  # fmt: skip
    assert train(3, options, folder / "log") == 0, (folder / "log").read_text()
    records = map(json.loads, (folder / "train/metrics.jsonl").read_text().splitlines())
    trained = [f"step {r['step']} loss {r['loss']:.9g}" for r in records if r["step"] % 10 == 0]
    assert lines == trained, (lines, trained)

    # Told to stop at its tenth step, it goes on with another number of ranks, to the same bits.
    job = subprocess.Popen(gpt(2, folder / "stopped"), stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                           env=clean_environment(), start_new_session=True)  # fmt: skip
    try:
        first = job.stdout.readline().strip()
        job.send_signal(signal.SIGTERM)
        rest = job.stdout.read().split("\n")
        assert job.wait(30) == 75, job.returncode
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
    resumed = subprocess.run(gpt(3, folder / "stopped"), capture_output=True, text=True, check=True, timeout=120,
                             stdin=subprocess.DEVNULL, env=clean_environment()).stdout.splitlines()  # fmt: skip
    assert [first, *filter(None, rest), *resumed] == lines, (first, rest, resumed)


def main():
    with tempfile.TemporaryDirectory(prefix="lockstep examples ") as name:
        folder = pathlib.Path(name)
        for path in sorted((SOURCE / "examples").glob("*.cpp")):
            began = time.monotonic()
            command, expected = promised(path)
            lines = run(command, folder / "run")
            assert_like(lines, expected)
            print(f"{path.name}: {len(lines)} lines as promised, {time.monotonic() - began:.1f} s")
            if path.stem == "03_gpt":
                check_gpt(folder, lines)
                print("03_gpt.cpp: the losses of lockstep train, also stopped and resumed")


if __name__ == "__main__":
    main()
