#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two hosts (tests/support/hosts.py): slow links, links that are cut, the same bits.

Skipped where namespaces cannot be made.
    hosts_test.py
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from hosts import Hosts, enter_user_namespace  # noqa: E402
from train import (BIN, SOURCE, TINY, Job, alive, lines_of, newest_commit, result_of, train, verify,
                   wait_for)  # fmt: skip  # noqa: E402

RATE = 100e6 / 8  # bytes a second of each link
SILENCE = 6.0  # seconds without a word after which a rank counts as lost
LIMIT = 10.0 + SILENCE  # from the cut to the end of the last rank
PATIENCE = 3  # of run-until-done with mpirun, which waits for the host that is gone

SMALL = {"model.preset": "gpt2-tiny", "batch.global": 8, "batch.micro": 1, "steps": 3, "seed": 5,
         "eval.every": 2, "eval.batches": 1, "schedule.warmup": 2,
         "data.source": f"text:{SOURCE}/include"}  # fmt: skip
LONG = {**TINY, "steps": 120, "checkpoint.every": 5}


# One host's end of a connection that carries so many bytes, and the other's, which times it.
SERVE = """
import socket, sys
with socket.create_server(("", 7777)) as server:
    print("ready", flush=True)
    with server.accept()[0] as link:
        while len(link.recv(1 << 16)): pass
        link.sendall(b"x")
"""
SEND = """
import socket, sys, time
began = time.monotonic()
with socket.create_connection((sys.argv[1], 7777), timeout=float(sys.argv[3])) as link:
    link.sendall(bytes(int(sys.argv[2])))
    link.shutdown(socket.SHUT_WR)
    link.recv(1)
print(time.monotonic() - began)
"""


def send(hosts, count, patience):
    """What it takes to bring bytes from h0 to h1: seconds, or the error."""
    server = subprocess.Popen([*hosts.hosts[1].enter(), sys.executable, "-c", SERVE], stdout=subprocess.PIPE)
    try:
        server.stdout.readline()
        words = [sys.executable, "-c", SEND, hosts.address(1), count, patience]
        done = subprocess.run([*hosts.hosts[0].enter(), *map(str, words)], capture_output=True, text=True, check=False)
    finally:
        server.kill()
        server.communicate()
    return float(done.stdout) if done.returncode == 0 else done.stderr


def check_links(hosts):
    count = 4_000_000
    seconds = send(hosts, count, 10)
    assert 0.8 * count / RATE < seconds < 5 * count / RATE, f"{count} bytes in {seconds} s"
    hosts.cut(1, "silent")
    assert "timed out" in send(hosts, 1, 0.5)
    hosts.mend(1)
    hosts.cut(0, "down")
    assert "unreachable" in send(hosts, 1, 0.5)
    hosts.mend(0)
    again = send(hosts, 1, 5)
    assert isinstance(again, float), again
    print(f"a link of 100 Mbit/s: {count / 1e6:.0f} MB in {seconds:.2f} s; cut and mended", flush=True)


def check_same_bits(folder, hosts):
    """gpt2-tiny on two hosts of two ranks over links of 100 Mbit/s, and alone."""
    alone, run, log = folder / "alone", folder / "hosts", folder / "hosts.log"
    assert train(0, {**SMALL, "run": alone}, folder / "alone.log") == 0, (folder / "alone.log").read_text()
    before = [hosts.sent_bytes(index) for index in range(2)]
    status = train(4, {**SMALL, "run": run}, log, launcher=hosts.launcher(2))
    assert status == 0, log.read_text()[-3000:]
    assert json.loads((run / "attempt.json").read_text())["hosts"] == ["h0", "h0", "h1", "h1"]
    assert result_of(run)["weights_sha256"] == result_of(alone)["weights_sha256"]
    assert lines_of(run) == lines_of(alone)
    # Each host owns half of the sums at most: gradients or sums of the other half cross the link.
    bytes_of_model = 4 * int(re.search(r"model: (\d+) parameters", log.read_text())[1])
    sent = [hosts.sent_bytes(index) - before[index] for index in range(2)]
    assert min(sent) > 0.9 * SMALL["steps"] * bytes_of_model, (sent, bytes_of_model)
    print(f"gpt2-tiny on 2 hosts of 2 ranks, {max(sent) / 1e6:.1f} MB over a link: losses and weights as alone",
          flush=True)  # fmt: skip


def causes(run, attempt):
    """{rank: cause} of an attempt."""
    return {int(path.name.split(".")[1]): json.loads(path.read_text())
            for path in (run / "cause").glob(f"{attempt}.*.json")}  # fmt: skip


def cut_and_mend(hosts, job, attempt, step, index, kind):
    run = job.run
    while job.attempt() < attempt and job.process.poll() is None:
        time.sleep(0.02)
    job.wait_for_step(step)
    pids = json.loads((run / "attempt.json").read_text())["pids"]
    # Not `ckpt ls`: the run would be over before that has looked.
    manifests = sorted((run / "checkpoints/m").glob("*"))
    hosts.cut(index, kind)
    cut = time.monotonic()
    while any(map(alive, pids)) and time.monotonic() - cut < LIMIT + 10:
        time.sleep(0.02)
    seconds = time.monotonic() - cut
    assert seconds < LIMIT, f"{seconds:.1f} s after the cut: {list(filter(alive, pids))} of {pids} live\n{job.text()}"
    found = causes(run, attempt)
    assert sorted(found) == [0, 1, 2, 3], found
    for rank, cause in found.items():
        # Each half has lost the other.
        elsewhere = (2, 3) if rank < 2 else (0, 1)
        assert cause["code"] == 79 and cause["kind"] == "stopped rank", (rank, cause)
        assert cause["origin_rank"] in elsewhere, (rank, cause)
    assert result_of(run)["code"] == 79 and result_of(run)["attempt"] == attempt, result_of(run)
    kept = sorted((run / "checkpoints/m").glob("*"))
    assert kept and newest_commit(run) and kept[-1:] >= manifests[-1:], (kept, manifests)
    verify(run)
    wait_for(job, rf"attempt {attempt} ended with 79", 30)
    hosts.mend(index)
    print(f"h{index} cut off ({kind}): the last rank ended after {seconds:.1f} s, mpirun and all after "
          f"{time.monotonic() - cut:.1f} s, newest commit {newest_commit(run)}", flush=True)  # fmt: skip


def check_cuts(folder, hosts):
    peace, run, log = folder / "peace", folder / "cuts", folder / "cuts.log"
    assert train(0, {**LONG, "run": peace}, folder / "peace.log") == 0, (folder / "peace.log").read_text()
    launcher = [str(SOURCE / "scripts/run-until-done"), "--run", str(run), "--patience", str(PATIENCE), "--",
                *hosts.launcher(2)]  # fmt: skip
    with Job(4, {**LONG, "run": run}, log, launcher=launcher, environment={"LOCKSTEP_BIN": BIN}) as job:
        cut_and_mend(hosts, job, 1, 15, 0, "silent")
        cut_and_mend(hosts, job, 2, 60, 1, "down")
        assert job.wait(60) == 0, job.text()[-3000:]
        text = job.text()
    assert re.findall(r"attempt (\d) ended with (\d+)", text) == [("1", "79"), ("2", "79"), ("3", "0")], text[-3000:]
    assert result_of(run)["weights_sha256"] == result_of(peace)["weights_sha256"]
    assert lines_of(run) == lines_of(peace)
    print(f"mended: resumed at steps {re.findall(r'resumed at step ([0-9]+)', text)}, the bits of an uncut run alone")


def main():
    if not enter_user_namespace():
        print("several hosts need namespaces: root, or a kernel that lets users make them")
        return 77
    with tempfile.TemporaryDirectory(prefix="lockstep hosts ") as name:
        with Hosts(2, rate="100mbit", decoy=True) as hosts:
            check_links(hosts)
            check_same_bits(pathlib.Path(name), hosts)
            check_cuts(pathlib.Path(name), hosts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
