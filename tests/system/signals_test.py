#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Notices to one rank, a pause, Ctrl-C at the launcher, and run-until-done over kills."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import (BIN, SOURCE, TINY, Job, alive, clean_environment, command, lines_of, newest_commit,  # noqa: E402
                   result_of, train)  # fmt: skip

OPTIONS = {**TINY, "steps": 3000, "checkpoint.every": 5000}


def notice(folder, peace, number):
    name = signal.Signals(number).name
    options = {**OPTIONS, "run": folder / name}
    with Job(2, options, folder / f"{name}.log") as job:
        job.wait_for_step(20)
        os.kill(job.pids()[1], number)
        assert job.wait(30) == 75, job.text()[-2000:]
        assert name in job.text()
        assert not job.processes(), "an orphan"
    result = result_of(folder / name)
    assert result["code"] == 75 and newest_commit(folder / name) == (1, result["steps"]), result
    assert train(3, options, folder / f"{name}.log") == 0
    assert result_of(folder / name)["weights_sha256"] == peace
    print(f"{name} to rank 1: saved at step {result['steps']}, resumed on 3 to the same bits")


def interrupt_at_launcher(folder):
    with Job(2, {**OPTIONS, "run": folder / "ctrl-c"}, folder / "ctrl-c.log") as job:
        job.wait_for_step(10)
        os.kill(job.process.pid, signal.SIGINT)
        assert job.wait(30) == 75, job.text()[-2000:]
        deadline = time.monotonic() + 5
        while job.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not job.processes(), "an orphan"
    print("Ctrl-C at the launcher: saved, no orphan")


def pause(folder, peace):
    options = {**OPTIONS, "run": folder / "pause"}
    assert train(2, {**options, "pause_at": 7}, folder / "pause.log") == 75
    assert newest_commit(folder / "pause") == (1, 7)
    assert train(1, options, folder / "pause.log") == 0
    assert result_of(folder / "pause")["weights_sha256"] == peace
    assert train(2, options, folder / "again.log") == 0
    assert newest_commit(folder / "pause") == (2, OPTIONS["steps"]), "a finished run was saved again"
    print("pause_at = 7, resumed to the same bits; a finished run stays as it is")


def until_done(folder, peace):
    run = folder / "until"
    options = {**OPTIONS, "run": run, "checkpoint.every": 100}
    script = [str(SOURCE / "scripts/run-until-done"), "--run", str(run), "--", *command(2, options)]
    environment = {**clean_environment(), "LOCKSTEP_BIN": BIN}
    process = subprocess.Popen(script, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    for step, victim in ((200, 0), (450, 1)):
        while max(lines_of(run), default=0) < step and process.poll() is None:
            time.sleep(0.02)
        os.kill(json.loads((run / "attempt.json").read_text())["pids"][victim], signal.SIGKILL)
    _, text = process.communicate(timeout=120)
    assert process.returncode == 0, text
    assert text.count("ended with 79") == 2, text
    assert result_of(run)["weights_sha256"] == peace
    refused = subprocess.run(
        [*script[:-len(command(2, options))], *command(2, {**options, "seed": 99})],
        env=environment, capture_output=True, text=True, check=False)  # fmt: skip
    assert refused.returncode == 78, refused.stderr
    print("run-until-done: two kills, three attempts, the same bits; 78 is not repeated")


# A launcher whose first attempt fails, and which then waits for what never comes, as its child does.
STUCK = r"""
attempt=$(($(cat "$1/count" 2>/dev/null) + 1))
echo $attempt >"$1/count"
echo "{\"attempt\":$attempt}" >"$1/attempt.json"
[ $attempt = 1 ] || { echo "{\"code\":0,\"attempt\":$attempt}" >"$1/result.json"; exit 0; }
mkdir "$1/cause"
echo '{"code":79}' >"$1/cause/1.3.json"
trap '' TERM
sleep 61.7 &
echo $! >"$1/child"
wait
"""


# It outlives its only rank, which has said nothing.
LEFT_ALONE = r"""
attempt=$(($(cat "$1/count" 2>/dev/null || echo 0) + 1)); echo $attempt >"$1/count"
echo "{\"attempt\":$attempt}" >"$1/attempt.json"
[ $attempt = 1 ] || { echo "{\"code\":0,\"attempt\":$attempt}" >"$1/result.json"; exit 0; }
sleep 1.5
exec 3<> <(:)
read -r -t 60 <&3
"""


def stuck_launcher(folder, text, name):
    run = folder / name
    run.mkdir()
    script = [str(SOURCE / "scripts/run-until-done"), "--run", str(run), "--patience", "1", "--",
              "bash", "-c", text, "launcher", str(run)]  # fmt: skip
    done = subprocess.run(script, env={**clean_environment(), "LOCKSTEP_BIN": BIN}, stderr=subprocess.PIPE,
                          text=True, check=False, timeout=30)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "its launcher has not within 1 s" in done.stderr and "attempt 1 ended with 79" in done.stderr, done.stderr
    if text is STUCK:
        assert not alive((run / "child").read_text().strip()), "the launcher's child was left"
    print(f"run-until-done: a launcher that outlives its {name} is killed, the next attempt begins")


def main():
    with tempfile.TemporaryDirectory(prefix="lockstep signals ") as name:
        folder = pathlib.Path(name)
        assert train(1, {**OPTIONS, "run": folder / "peace"}, folder / "peace.log") == 0
        peace = result_of(folder / "peace")["weights_sha256"]
        for number in (signal.SIGTERM, signal.SIGUSR1):
            notice(folder, peace, number)
        interrupt_at_launcher(folder)
        pause(folder, peace)
        until_done(folder, peace)
        stuck_launcher(folder, STUCK, "attempt")
        stuck_launcher(folder, LEFT_ALONE, "ranks")


if __name__ == "__main__":
    main()
