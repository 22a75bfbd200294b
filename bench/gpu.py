#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The part of bench/gpu.sh that comes after the build: everything that one GPU can show, as one JSON file.

  bench/gpu.py [--build build/cuda] [--out build/gpu.json] [--minutes 8] [--python build/venv/bin/python]

Each part has its own limit and is written to the file as soon as it is done; one that fails or for which no time is
left says so and the others go on. The exit status is 0 if all that ran held. PyTorch is taken from --python if that
has one with CUDA.

  conformance   tests of kernels, and of NCCL on as many GPUs as there are
  parity        logits, gradients and the losses of 20 steps against the CPU; the same bits once more and after a resume
  attention     20 steps in bf16 with attention by cuDNN and by our own kernels; the same bits once more
  two_ranks     the same bits on two ranks that share GPU 0 (NCCL is told that they are on two hosts)
  step          GPT-2 124M in bf16 and f32 beside PyTorch, eager and compiled, in turns; MFU; memory; the roofline
"""

import argparse
import array
import json
import math
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))
import roofline  # noqa: E402

# Of the shapes of gpt2-124m what parity needs; over the fakes, all is small.
PARITY = {"layers": 4, "hidden": 256, "heads": 4, "context": 256, "vocab": 1000}
SMALL = {"layers": 2, "hidden": 32, "heads": 2, "context": 64, "vocab": 256}
# NCCL refuses two ranks on one GPU of one host; told of a host each, it takes the network.
HOST_EACH = ["sh", "-c", 'NCCL_HOSTID="host-$OMPI_COMM_WORLD_RANK" exec "$0" "$@"']
LOOPBACK = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
LIMITS = {"logits": 1e-5, "gradients": 1e-4, "losses": 1e-5}  # of f32, relative L2, L2, absolute
MOST_BETWEEN_ATTENTIONS = 0.05  # nats, in bf16


class Report:
    """The file, written anew after each part."""

    def __init__(self, options):
        self.path = options.out
        self.deadline = options.began + 60 * options.minutes
        self.parts = {"fake": options.fake, "measured": not options.fake}

    def left(self):
        return self.deadline - time.time()

    def write(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.parts, indent=1) + "\n", encoding="utf-8")

    def part(self, name, limit, body):
        """Runs a part that may take `limit` seconds."""
        began = time.monotonic()
        seconds = min(limit, self.left() - 5)
        if seconds < 10:
            result = {"ok": None, "skipped": "no time is left"}
        else:
            try:
                result = {"ok": True, **body(seconds)}
            except (Failed, subprocess.SubprocessError, OSError, ValueError, KeyError) as error:
                result = {"ok": False, "error": str(error)[-3000:]}
        result["took_s"] = round(time.monotonic() - began, 1)
        self.parts[name] = result
        self.write()
        said = "ok" if result["ok"] else result.get("skipped") or "FAILED"
        print(f"== {name}: {said} after {result['took_s']} s", flush=True)
        if result["ok"] is False:
            print(result["error"], file=sys.stderr)


class Failed(Exception):
    pass


def require(holds, what):
    if not holds:
        raise Failed(what)


class Clock:
    """What is left of a part's seconds, for its next command."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return max(self.end - time.monotonic(), 1)


def run(words, seconds, environment=None):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_") or k.startswith("LOCKSTEP_FAKE_")}
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, cwd=ROOT,
                          stdin=subprocess.DEVNULL, timeout=seconds, env={**kept, **(environment or {})})  # fmt: skip
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2500:]}")
    return done.stdout


def model_words(shape):
    return ["--model.preset", "none", *[word for key, value in shape.items() for word in (f"--model.{key}", value)]]


class Machine:
    def __init__(self, options):
        self.build = options.build.resolve()
        self.fake = options.fake
        self.lockstep = self.build / "bin/lockstep"
        self.shape = SMALL if options.fake else PARITY

    def job(self, ranks):
        return [ROOT / "scripts/mpirun-local", "-n", ranks]

    def describe(self, seconds):
        clock = Clock(seconds)
        found = {"lockstep": run([self.lockstep, "version"], clock.left())}
        require("compute capability" in found["lockstep"], f"it sees no device:\n{found['lockstep']}")
        if not self.fake:
            query = "name,driver_version,memory.total,power.limit,clocks.max.sm,mig.mode.current"
            found["gpu"] = run(["nvidia-smi", f"--query-gpu={query}", "--format=csv"], clock.left())
        return found

    def suite(self, words, clock, environment=None):
        """Passed and skipped tests of a gtest binary, as rank 0 lists them."""
        said = run([*words, "--gtest_color=no"], clock.left(), environment)
        passed = len(re.findall(r"^\[       OK \]", said, re.MULTILINE))
        skipped = re.findall(r"^\[  SKIPPED \] (\S+) \(", said, re.MULTILINE)
        require(passed > 0, f"{words[0]} ran no test")
        return {"passed": passed, "skipped": len(skipped)}

    def conformance(self, seconds):
        clock = Clock(seconds)
        group = self.build / "bin/process_group_mpi_test"
        return {"kernels": self.suite([self.build / "bin/cuda_kernels_test"], clock),
                "nccl": self.suite([self.build / "bin/nccl_test", "--gtest_filter=*Conformance*:*Nccl*"], clock),
                "job": self.suite([*self.job(1), group, "--device=cuda", "--gtest_filter=*Conformance*"], clock)}  # fmt: skip

    def train(self, folder, name, clock, ranks=1, device="cuda:0", changes=None, environment=None, paused=False,
              wrapper=()):
        options = {"run": folder / name, "data.source": f"text:{ROOT}/include", "device": device, "steps": 20,
                   "batch.global": 8, "batch.micro": 2, "seed": 3, "optim.lr": 1e-3, "schedule.warmup": 5,
                   "eval.every": 0, **(changes or {})}  # fmt: skip
        words = [*self.job(ranks), *wrapper, self.lockstep, "train", *model_words(self.shape)]
        words += [word for key, value in options.items() for word in (f"--{key}", value)]
        try:
            run(words, clock.left(), environment)
        except Failed as failure:
            if not (paused and "ended with 75" in str(failure)):
                raise
        lines = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
        result = json.loads((folder / name / "result.json").read_text())
        return {line["step"]: line["loss"] for line in lines}, result["weights_sha256"]

    def tensors(self, folder, device, clock):
        probe = self.build / "bin/gradients_probe"
        names = run([probe, folder, 3, 2, device], clock.left()).split()
        values = array.array("f", (folder / "tensors.bin").read_bytes())
        logits = 2 * self.shape["context"] * self.shape["vocab"]
        return names, values[:logits], values[logits:]

    def parity(self, seconds):
        clock = Clock(seconds)
        found = {}
        with tempfile.TemporaryDirectory(prefix="lockstep gpu ") as name:
            folder = pathlib.Path(name)
            s = self.shape
            config = {"model_type": "gpt2", "n_layer": s["layers"], "n_embd": s["hidden"], "n_head": s["heads"],
                      "n_inner": 4 * s["hidden"], "n_positions": s["context"], "n_ctx": s["context"],
                      "vocab_size": s["vocab"], "layer_norm_epsilon": 1e-5}  # fmt: skip
            (folder / "config.json").write_text(json.dumps(config))
            chance = random.Random(3)
            batch = array.array("i", (chance.randrange(s["vocab"]) for _ in range(2 * 2 * s["context"])))
            (folder / "batch.bin").write_bytes(batch.tobytes())
            names, cpu_logits, cpu_gradients = self.tensors(folder, "cpu", clock)
            same_names, logits, gradients = self.tensors(folder, "cuda:0", clock)
            require(names == same_names and len(gradients) == len(cpu_gradients), "other parameters")
            found["logits"] = distance(logits, cpu_logits)
            found["gradients"] = distance(gradients, cpu_gradients)
            cpu, _ = self.train(folder, "cpu", clock, device="cpu")
            losses, bits = self.train(folder, "cuda", clock)
            require(sorted(losses) == sorted(cpu) == list(range(1, 21)), "not 20 steps")
            found["losses"] = max(abs(losses[step] - cpu[step]) for step in cpu)
            for key, limit in LIMITS.items():
                require(found[key] <= limit, f"{key} are {found[key]:.2e} from the CPU's, more than {limit}: {found}")
            require(self.train(folder, "again", clock) == (losses, bits), "a second run has other bits")
            self.train(folder, "resumed", clock, changes={"pause_at": 9}, paused=True)
            require(self.train(folder, "resumed", clock) == (losses, bits), "a resumed run has other bits")
            found |= {"steps": 20, "same_bits_again": True, "same_bits_resumed": True, "weights_sha256": bits}
            bf16, bits = self.train(folder, "bf16", clock, changes={"precision": "bf16"})
            found["bf16_losses"] = max(abs(bf16[step] - cpu[step]) for step in cpu)  # told, not judged
            require(self.train(folder, "bf16-again", clock, changes={"precision": "bf16"}) == (bf16, bits),
                    "a second run in bf16 has other bits")  # fmt: skip
        return found

    def attention(self, seconds):
        clock = Clock(seconds)

        def train(name, by):
            changes, environment = {"precision": "bf16"}, {"LOCKSTEP_CUDA_ATTENTION": by}
            return self.train(folder, name, clock, changes=changes, environment=environment)

        with tempfile.TemporaryDirectory(prefix="lockstep gpu ") as name:
            folder = pathlib.Path(name)
            own, _ = train("own", "own")
            try:
                cudnn, bits = train("cudnn", "cudnn")
            except Failed as failure:
                why = re.search("attention by cuDNN: (.*)", str(failure))
                if not why:
                    raise
                return {"cudnn": f"not used: {why[1]}"}
            apart = max(abs(cudnn[step] - own[step]) for step in own)
            require(0 < apart <= MOST_BETWEEN_ATTENTIONS, f"losses are {apart} nats apart")
            require(train("again", "cudnn") == (cudnn, bits), "a second run with cuDNN has other bits")
        return {"cudnn": "used", "losses_apart": apart, "same_bits_again": True}

    def two_ranks(self, seconds):
        clock = Clock(seconds)
        with tempfile.TemporaryDirectory(prefix="lockstep gpu ") as name:
            folder = pathlib.Path(name)
            alone = self.train(folder, "alone", clock)
            both = self.train(folder, "both", clock, ranks=2, changes={"backend": "nccl"}, environment=LOOPBACK,
                              wrapper=HOST_EACH)  # fmt: skip
            require(both == alone, "two ranks have other bits than one")
        group = self.build / "bin/process_group_mpi_test"
        suite = self.suite([*self.job(2), *HOST_EACH, group, "--device=cuda:0", "--backend=nccl",
                            "--gtest_filter=*Conformance*"], clock, LOOPBACK)  # fmt: skip
        return {"same_bits": True, "conformance": suite}


def distance(ours, theirs):
    """Relative, L2."""
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(ours, theirs)) / sum(b * b for b in theirs))


def last_line(text):
    return json.loads(text.strip().splitlines()[-1])


def torch_of(python, device):
    """The version of PyTorch that can use the device, or why there is none."""
    check = "import torch; print(torch.__version__)" + ("" if device == "cpu" else "; torch.ones(1, device='cuda')")
    done = subprocess.run([python, "-c", check], capture_output=True, text=True, check=False, timeout=120)
    return (done.stdout.strip(), "") if done.returncode == 0 else ("", done.stderr.strip()[-300:])


class Steps:
    """Our step and PyTorch's in turns."""

    def __init__(self, machine, options):
        self.machine = machine
        self.python = options.python
        self.rounds = options.rounds
        self.repeats = 3 if machine.fake else 10
        self.batch = 4 if machine.fake else 16
        self.torch_device = "cpu" if machine.fake else "cuda"
        preset = roofline.PRESETS["gpt2-124m"]
        self.shape = SMALL if machine.fake else {key: preset[key] for key in SMALL}

    def ours(self, precision, clock, environment=None):
        words = [self.machine.lockstep, "bench", "step", "--device", "cuda:0", "--precision", precision,
                 "--repeats", self.repeats, "--batch.global", self.batch, "--batch.micro", self.batch,
                 *model_words(self.shape)]  # fmt: skip
        line = last_line(run(words, clock.left(), environment))
        require(line["checked"] is True, f"not checked: {line}")
        return line

    def theirs(self, precision, compiled, clock):
        words = [self.python, ROOT / "bench/peers/torch_cuda_gpt.py", "--precision", precision,
                 "--device", self.torch_device, "--repeats", self.repeats, "--batch-global", self.batch,
                 "--batch-micro", self.batch]  # fmt: skip
        words += [word for key, value in self.shape.items() for word in (f"--{key}", value)]
        return last_line(run([*words, "--compile"] if compiled else words, clock.left()))

    def measure(self, precision, seconds):
        clock = Clock(seconds)
        version, reason = torch_of(self.python, self.torch_device)
        sides = {"ours": lambda: self.ours(precision, clock)}
        if precision == "bf16":
            own = {"LOCKSTEP_CUDA_ATTENTION": "own"}
            sides["own_attention"] = lambda: self.ours(precision, clock, own)
        if version:
            sides["eager"] = lambda: self.theirs(precision, False, clock)
            sides["compiled"] = lambda: self.theirs(precision, True, clock)
        lines = {side: [] for side in sides}
        for _ in range(self.rounds):
            for side, once in sides.items():
                lines[side].append(once())
        result = {"torch": version or f"none: {reason}", "rounds": self.rounds, "lines": lines}
        for side, each in lines.items():
            result[side] = {"seconds": sorted(line["seconds"] for line in each)[len(each) // 2],
                            "device_bytes": each[-1].get("device_bytes")}  # fmt: skip
        require(len({line["parameters"] for each in lines.values() for line in each}) == 1, f"other models: {lines}")
        if not self.machine.fake:
            words = ["--preset", "gpt2-124m", "--precision", precision, "--batch.global", str(self.batch),
                     "--batch.micro", str(self.batch)]  # fmt: skip
            least = roofline.estimate(roofline.read_options(words))
            seconds_of_step = result["ours"]["seconds"]
            result |= {"mfu": least["model_flops"] / least["mfu_peak"] / seconds_of_step, "mfu_peak": least["mfu_peak"],
                       "of_bound": seconds_of_step / least["bound_s"]}  # fmt: skip
        for side in lines:
            if side != "ours":
                result[f"times_{side}"] = result[side]["seconds"] / result["ours"]["seconds"]
        return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/cuda")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/gpu.json")
    parser.add_argument("--minutes", type=float, default=8.0, help="from --began to the end")
    parser.add_argument("--began", type=float, default=time.time(), help="seconds since 1970, before the build")
    parser.add_argument("--rounds", type=int, default=3, help="of ours, eager, compiled in turn")
    venv = ROOT / "build/venv/bin/python"
    parser.add_argument("--python", type=pathlib.Path, default=venv if venv.exists() else sys.executable)
    parser.add_argument("--fake", action="store_true", help="a build with the fake libraries: measures nothing")
    options = parser.parse_args()
    if options.fake:
        os.environ.setdefault("LOCKSTEP_FAKE_GPUS", "4")
    report = Report(options)
    machine = Machine(options)
    if not machine.lockstep.exists():
        sys.exit(f"bench/gpu.py: {machine.lockstep} is missing: bench/gpu.sh builds it")
    report.part("machine", 60, machine.describe)
    if not report.parts["machine"]["ok"]:
        sys.exit(78)
    steps = Steps(machine, options)
    report.part("parity", 100, machine.parity)
    report.part("attention", 60, machine.attention)
    report.part("step_bf16", 170, lambda seconds: steps.measure("bf16", seconds))
    report.part("two_ranks", 60, machine.two_ranks)
    report.part("conformance", 100, machine.conformance)
    report.part("step_f32", 100, lambda seconds: steps.measure("f32", seconds))
    parts = [part["ok"] for part in report.parts.values() if isinstance(part, dict)]
    print(f"{report.path}: {parts.count(True)} held, {parts.count(False)} failed, {parts.count(None)} not run")
    sys.exit(1 if False in parts else 0)


if __name__ == "__main__":
    main()
