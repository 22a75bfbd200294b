#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bad input gives one clear message from one rank and the right code, and loses nothing."""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import BIN, MPIRUN, TINY, Job, clean_environment, flags, train  # noqa: E402

failures = []


def check(name, words, code, texts, environment=None):
    run = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120,
                         stdin=subprocess.DEVNULL, check=False,
                         env={**clean_environment(), **(environment or {})})  # fmt: skip
    messages = [line for line in run.stderr.splitlines() if line.startswith("lockstep: ")]
    problems = []
    if run.returncode != code:
        problems.append(f"code {run.returncode}, expected {code}")
    if len(messages) != 1:
        problems.append(f"{len(messages)} messages")
    problems += [f"no {text!r}" for text in texts if text not in run.stderr]
    print(f"{'ok  ' if not problems else 'FAIL'} {name}: {messages[0] if messages else ''}")
    if problems:
        failures.append(name)
        print(f"     {problems}\n{run.stdout[-800:]}\n{run.stderr[-1500:]}")


def main():
    with tempfile.TemporaryDirectory(prefix="lockstep bad ") as name:
        folder = pathlib.Path(name)
        base = {**TINY, "steps": 4, "run": folder / "good", "checkpoint.every": 2}
        empty, one = folder / "empty", folder / "one"
        empty.mkdir()
        one.write_text("x")

        def job(ranks, **changes):
            options = {**base, "run": folder / "other", **{k.replace("__", "."): v for k, v in changes.items()}}
            return [MPIRUN, "-n", ranks, BIN, "train", *flags(options)]

        check("unknown flag", [*job(2), "--batch.mirco", "1"], 78, ["--batch.mirco", "--batch.micro?"])
        check("unknown variable", job(2), 78, ["LOCKSTEP_SEDE", "LOCKSTEP_SEED?"], {"LOCKSTEP_SEDE": "1"})
        check("later key", [*job(2), "--time_limit", "60"], 78, ["not in this version"])
        check("no failure allowed", job(2, checkpoint__max_failures=0), 78, ["checkpoint.max_failures", "at least 1"])
        check("range", job(2, batch__micro=0), 78, ["batch.micro", "at least 1"])
        check("not a number", job(2, steps="many"), 78, ["steps", "integer"])
        check("indivisible batch", job(2, batch__micro=3), 78, ["batch.global = 8", "batch.micro = 3"])
        check("small vocabulary", job(2, model__vocab=100), 78, ["model.vocab", "256"])
        check("heads", job(2, model__heads=5), 78, ["heads"])
        check("more ranks than leaves", job(3, batch__micro=4), 78, ["3", "2", "leaves"])
        check("mesh", job(2, mesh__data=3), 78, ["3"])
        check("no data", job(2, data__source=f"text:{folder}/none"), 78, ["none", "does not exist"])
        check("empty data", job(2, data__source=f"text:{empty}"), 78, ["no text"])
        check("one byte", job(2, data__source=f"text:{one}"), 78, ["sample"])
        check("data scheme", job(2, data__source="s3://bucket"), 78, ["data.source"])
        check("store scheme", job(2, store="ftp://host/x"), 78, ["ftp"])
        check("no bucket", job(2, store="s3://"), 78, ["bucket"])
        check("run is a file", job(2, run=one / "run"), 78, ["cannot be written"])
        check("resume must", job(2, resume="must", run=folder / "fresh"), 74, [])
        check("two configurations",
              [*job(1), ":", "-n", 1, BIN, "train", *flags({**base, "run": folder / "other", "seed": 4})],
              78, ["seed", "rank 0", "rank 1"])  # fmt: skip
        check("srun singletons", job(1)[3:], 78, ["srun --mpi=pmix"],
              {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0", "SLURM_JOB_ID": "1"})  # fmt: skip
        check("torchrun", job(1)[3:], 78, ["mpirun"],
              {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "x"})  # fmt: skip
        check("unknown command", [BIN, "trian"], 78, ["train?"])
        check("ckpt of nothing", [BIN, "ckpt", "ls", folder / "nothing"], 78, [])

        # Legal, and often a mistake: said, and the job runs.
        alone = subprocess.run(list(map(str, job(1, run=folder / "alone")[3:])), capture_output=True,
                               text=True, check=True, env={**clean_environment(), "SLURM_NTASKS": "4"})  # fmt: skip
        assert "NOTE Slurm holds 4 tasks" in alone.stdout + alone.stderr, alone.stderr
        assert train(2, base, folder / "good.log") == 0, (folder / "good.log").read_text()
        before = (folder / "good/result.json").read_text()
        check("never resume", job(2, run=folder / "good", resume="never"), 78, ["resume"])
        check("another model", job(2, run=folder / "good", model__hidden=64), 78,
              ["transformer.wte.weight", "[256, 32]", "[256, 64]"])  # fmt: skip
        assert (folder / "good/result.json").read_text() == before, "a refusal changed the run"
        check("another seed", job(2, run=folder / "good", seed=9, data__seed=9), 78, ["seed"])
        check("other data", job(2, run=folder / "good", data__source=f"text:{BIN}"), 78, ["data"])
        check("other leaves", job(2, run=folder / "good", batch__micro=2), 78, ["allow_new_bits"])
        check("not finite", job(2, run=folder / "nan", optim__lr=1e30, optim__clip=0, schedule__warmup=0,
                                steps=20), 81, ["not finite", "step "])  # fmt: skip
        with Job(2, {**base, "run": folder / "busy", "steps": 100000}, folder / "busy.log") as busy:
            pids = busy.wait_for_pids()
            check("run in use", job(2, run=folder / "busy"), 78, ["in use", f"process {pids[0]}"])
        if os.geteuid() != 0:
            locked = folder / "locked"
            locked.mkdir(mode=0o500)
            check("unwritable folder", job(2, run=locked / "run"), 78, ["cannot be written"])
    sys.exit(f"failed: {failures}" if failures else 0)


if __name__ == "__main__":
    main()
