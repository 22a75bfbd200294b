# SPDX-License-Identifier: Apache-2.0
"""Starts `lockstep train` as a user would and reads what it leaves, for tests in Python."""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time
import uuid

BIN = os.environ["LOCKSTEP_BIN"]
SOURCE = pathlib.Path(os.environ["LOCKSTEP_SOURCE"])
MPIRUN = str(SOURCE / "scripts/mpirun-local")
# Where the jobs train, and how their ranks may exchange gradients then.
DEVICE = os.environ.get("LOCKSTEP_TEST_DEVICE", "cpu")
BACKENDS = ("shm", "mpi") if DEVICE == "cpu" else ("auto", "nccl")
FIELDS = ("loss", "eval_loss", "grad_norm", "tokens", "lr")


def flags(options):
    """{"batch.micro": 1} -> ["--batch.micro", "1"]"""
    return [word for key, value in options.items() for word in (f"--{key}", str(value))]


def command(ranks, options, launcher=None):
    if launcher is None:
        launcher = [MPIRUN, "-n", str(ranks)] if ranks else []
    return [*launcher, BIN, "train", *flags(options)]


# Small enough that a step takes milliseconds; V = 8.
TINY = {
    "model.preset": "none", "model.layers": 2, "model.hidden": 32, "model.heads": 2,
    "model.context": 32, "model.vocab": 256, "batch.global": 8, "batch.micro": 1, "seed": 3,
    "optim.lr": 2e-3, "schedule.warmup": 5, "eval.every": 20, "eval.batches": 1,
    "data.source": f"text:{SOURCE}/include", "device": DEVICE,
}  # fmt: skip


def clean_environment():
    kept = "LOCKSTEP_FAKE_"  # the devices of a build with fake CUDA libraries
    return {k: v for k, v in os.environ.items() if k.startswith(kept) or not k.startswith("LOCKSTEP_")}


class Job:
    """A running job in a session of its own; `with` ends whatever of it is left."""

    def __init__(self, ranks, options, log, transports=None, launcher=None, environment=None):
        """`transports`: byte transports of Open MPI, instead of those that mpirun-local chooses.
        `launcher`: the words before the command, instead of mpirun-local (Hosts.launcher)."""
        self.run = pathlib.Path(options["run"])
        self.log = pathlib.Path(log)
        self.mark = uuid.uuid4().hex
        before = self.attempt()
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen(
                command(ranks, options, launcher), stdout=out, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, start_new_session=True,
                env={**clean_environment(), "LOCKSTEP_TEST_MARK": self.mark,
                     **({"LOCKSTEP_LOCAL_BTL": transports} if transports else {}),
                     **(environment or {})})  # fmt: skip
        self.before = before

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):  # ended meanwhile
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def processes(self):
        """{pid: rank} of everything that this job has started and that lives; rank None: a launcher."""
        found = {}
        for path in pathlib.Path("/proc").iterdir():
            if not path.name.isdigit() or not alive(path.name):
                continue
            try:
                environment = (path / "environ").read_bytes()
                words = (path / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if self.mark.encode() in environment:
                rank = re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", environment)
                is_rank = rank and words[0] == BIN.encode()
                found[int(path.name)] = int(rank[1]) if is_rank else None
        return found

    def attempt(self):
        try:
            return json.loads((self.run / "attempt.json").read_text())["attempt"]
        except (OSError, ValueError):
            return 0

    def pids(self):
        """The processes of this attempt; None before it has begun."""
        if self.attempt() <= self.before:
            return None
        return json.loads((self.run / "attempt.json").read_text())["pids"]

    def wait_for_pids(self, seconds=60):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            if found := self.pids():
                return found
            time.sleep(0.02)
        raise AssertionError(f"no attempt began:\n{self.text()[-2000:]}")

    def wait_for_step(self, step, seconds=120):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            if max(lines_of(self.run), default=0) >= step:
                return
            time.sleep(0.02)
        raise AssertionError(f"step {step} was not reached:\n{self.text()[-2000:]}")

    def wait(self, seconds=300):
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not ended after {seconds} s:\n{self.threads()}\n{self.text()[-2000:]}") from None

    def threads(self):
        """What every thread of the job waits in: a line each."""
        lines = []
        for pid, rank in self.processes().items():
            for task in sorted(pathlib.Path(f"/proc/{pid}/task").iterdir()):
                try:
                    name, call = (task / "comm").read_text().strip(), (task / "syscall").read_text().split()[0]
                    state = (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
                    lines.append(f"pid {pid} rank {rank} thread {name}: {state}, system call {call}, "
                                 f"{(task / 'wchan').read_text()}")  # fmt: skip
                except OSError as error:
                    lines.append(f"pid {pid} rank {rank}: {error}")
        return "\n".join(lines)

    def text(self):
        return self.log.read_text(errors="replace")


def train(ranks, options, log, seconds=300, launcher=None, environment=None):
    """Runs a job to its end; its exit status."""
    with Job(ranks, options, log, launcher=launcher, environment=environment) as job:
        return job.wait(seconds)


def result_of(run):
    return json.loads((pathlib.Path(run) / "result.json").read_text())


def lines_of(run):
    """The last line of each step, as the texts of its fields."""
    steps = {}
    path = pathlib.Path(run) / "metrics.jsonl"
    if not path.exists():
        return steps
    for line in path.read_text().splitlines():
        fields = dict(re.findall(r'"(\w+)":([^,}]+)', line))
        if "checkpoint_stall_s" in fields:  # else torn
            steps[int(fields["step"])] = {name: fields.get(name) for name in FIELDS}
    return steps


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def ckpt(*words, environment=None, code=0):
    """What `lockstep ckpt` says."""
    done = subprocess.run([BIN, "ckpt", *map(str, words)], capture_output=True, text=True, check=False, timeout=300,
                          env={**clean_environment(), **(environment or {})})  # fmt: skip
    assert code is None or done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def newest_commit(place, environment=None):
    """(attempt, step) of the newest live commit of a run folder or store; None without one."""
    listing = ckpt("ls", place, environment=environment, code=None)
    live = [line.split() for line in listing.splitlines() if line.endswith("live")]
    return (int(live[-1][1]), int(live[-1][0])) if live else None


def verify(place, environment=None):
    """That every checkpoint is whole: every byte is read."""
    assert "all bytes are as they were written" in ckpt("verify", place, environment=environment)


def wait_for(job, pattern, seconds=60, meanwhile=lambda: None):
    """Until a running job has printed the pattern."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and job.process.poll() is None:
        meanwhile()
        if re.search(pattern, job.text()):
            return
        time.sleep(0.02)
    raise AssertionError(f"no {pattern!r}:\n{job.text()[-3000:]}")
