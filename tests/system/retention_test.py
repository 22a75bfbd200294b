#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""checkpoint.keep_best keeps the best commits, and `ckpt gc` removes what is not needed any more."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import BIN, TINY, Job, clean_environment, lines_of, train  # noqa: E402

# A rate at which the evaluation gets better first and then worse.
OPTIONS = {**TINY, "steps": 30, "checkpoint.every": 3, "eval.every": 3, "checkpoint.keep": 1,
           "checkpoint.async": "false", "checkpoint.keep_best": 3, "optim.lr": 0.05, "schedule.warmup": 25}  # fmt: skip


def lockstep(*words, code=0):
    run = subprocess.run([BIN, *map(str, words)], capture_output=True, text=True, check=False,
                         env=clean_environment(), timeout=60)  # fmt: skip
    assert run.returncode == code, (words, run.returncode, run.stdout, run.stderr)
    return run.stdout


def live(run):
    """{step: eval_loss} of the live commits."""
    rows = [line.split() for line in lockstep("ckpt", "ls", run).splitlines() if line.endswith("live")]
    return {int(row[0]): row[5] for row in rows}


def files_of(run):
    return sorted(p for p in (run / "checkpoints").rglob("*") if p.is_file())


def main():
    with tempfile.TemporaryDirectory(prefix="lockstep retention ") as name:
        folder = pathlib.Path(name)
        run = folder / "run"
        # Over two attempts: what an older one has evaluated counts.
        assert train(1, {**OPTIONS, "run": run, "pause_at": 16}, folder / "log") == 75, (folder / "log").read_text()
        assert train(2, {**OPTIONS, "run": run}, folder / "log") == 0, (folder / "log").read_text()
        losses = {step: line["eval_loss"] for step, line in lines_of(run).items() if line["eval_loss"]}
        assert len(losses) == 10, losses
        best = sorted(losses, key=lambda step: (float(losses[step]), -step))[:3]
        found = live(run)
        assert set(found) == {*best, 30}, (found, losses)
        assert all(found[step] == losses[step] for step in found), (found, losses)
        print(f"steps {sorted(found)} are kept: the newest, and the best three of {losses}")

        # A shard that an attempt left without a COMMIT: of an old attempt it goes, of the newest it stays.
        old, new = (run / f"checkpoints/s/ab/000000000099.{epoch:06}.000/w000000.h5" for epoch in (1, 2))
        for path in (old, new):
            path.parent.mkdir(parents=True)
            path.write_bytes(b"torn" * 100)
        before = files_of(run)
        said = lockstep("ckpt", "gc", run)
        assert "would remove" in said and "give --dry_run false" in said, said
        assert files_of(run) == before, "a dry run removed something"
        logs = sorted((run / "checkpoints/log").iterdir())
        said = lockstep("ckpt", "gc", f"file:{run}/checkpoints", "--dry-run", "false")
        assert "400 bytes  attempt 1 ended before its COMMIT" in said, said
        assert "1 objects, 400 bytes of attempt 2 have no COMMIT and stay" in said, said
        assert not old.exists() and new.exists()
        shards = [p for p in files_of(run) if p.suffix == ".h5" and p != new]
        assert {int(p.parent.name.split(".")[0]) for p in shards} == set(found), shards
        assert sorted((run / "checkpoints/log").iterdir()) == logs, "gc wrote into the log"
        assert "0 objects, 0 bytes (0.0 MB) removed" in lockstep("ckpt", "gc", run, "--dry_run=false")
        lockstep("ckpt", "verify", run)
        for step in found:
            lockstep("ckpt", "export", run, "--to", folder / "out", "--step", step)

        # Beside a job that saves at each step.
        busy = folder / "busy"
        options = {**OPTIONS, "run": busy, "steps": 400, "checkpoint.every": 1, "eval.every": 50}
        with Job(2, options, folder / "busy.log") as job:
            job.wait_for_step(5)
            rounds = 0
            while job.process.poll() is None and rounds < 10:
                lockstep("ckpt", "gc", busy, "--dry_run", "false")
                rounds += 1
            os.kill(job.wait_for_pids()[0], signal.SIGTERM)  # a rank: mpirun would kill them all
            job.wait(60)
        assert rounds > 3, rounds
        lockstep("ckpt", "verify", busy)
        assert train(2, {**options, "steps": 401}, folder / "busy.log") == 0, (folder / "busy.log").read_text()
        text = (folder / "busy.log").read_text()
        assert "damaged" not in text and "failed" not in text, text
        lockstep("ckpt", "gc", folder, code=78)
        lockstep("ckpt", "gc", run, "--dry_run", "maybe", code=78)
        print(f"gc ran {rounds} times beside a job that saved, and took nothing that it needed")


if __name__ == "__main__":
    main()
