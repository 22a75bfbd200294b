#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The sums of bench/roofline.py against arithmetic done another way, by formulas of the whole model."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
L, C, H, T, V = 12, 768, 12, 1024, 50257  # gpt2-124m
N = 124_439_808


def run(*words):
    command = [sys.executable, ROOT / "bench/roofline.py", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def estimate(*words):
    done = run("--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def total(result, kernel, key, place=""):
    found = [k[key] for k in result["kernels"] if k["kernel"] == kernel and k["place"].startswith(place)]
    assert found, (kernel, place)
    return sum(found)


def near(found, wanted, tolerance=1e-12):
    assert abs(found - wanted) <= tolerance * abs(wanted), (found, wanted)


def check_model():
    result = estimate("--batch.global", 16, "--batch.micro", 4)
    tokens = 16 * T
    assert result["parameters"] == N == V * C + T * C + L * (12 * C * C + 13 * C) + 2 * C
    assert result["tokens"] == tokens
    assert result["model_flops"] == 6 * N * tokens + 12 * L * C * T * tokens
    # Every matrix once forward and twice backward, two operations an element and token; the head is wte.
    near(total(result, "gemm", "flops"), 6 * (N - T * C - L * 13 * C - 2 * C) * tokens)
    assert result["measured"] is False


def check_update():
    """The optimizer's bytes: 7 f32 a parameter, and masters rounded where matrices are of 16 bits."""
    matrices = V * C + T * C + L * 12 * C * C
    for precision, rounded in (("f32", 0), ("bf16", 6 * matrices)):
        result = estimate("--precision", precision)
        near(total(result, "adamw", "bytes"), 28 * N)
        assert total(result, "adamw", "calls") == 4 + 12 * L
        masters = [k["bytes"] for k in result["kernels"] if k["place"] == "masters to matrices"]
        assert sum(masters) == rounded, (masters, rounded)
    # Each parameter starts on a block of the arena: rounded up, 4 bytes an element, 8 a block for its sum.
    arena = sum(-(-n // 4096) for n in [V * C, T * C, C, C] + L * [C, C, 3 * C * C, 3 * C, C * C, C, C, C,
                                                                   4 * C * C, 4 * C, 4 * C * C, C]) * 4096  # fmt: skip
    near(total(result, "block_square_sums", "bytes"), 4 * arena + 8 * arena / 4096)


def check_reduction():
    """Four leaves: invariant adds three arenas, fast lets products add to what is there."""
    words = ("--batch.global", 16, "--batch.micro", 4)
    invariant, fast = (estimate(*words, "--reduction", name) for name in ("invariant", "fast"))
    adds = total(invariant, "add", "bytes", "sums of leaves")
    assert abs(adds - 3 * 12 * N) < 0.005 * adds, adds
    matrices = N - T * C - L * 13 * C - 2 * C
    near(total(fast, "gemm", "bytes") - total(invariant, "gemm", "bytes"), 3 * 4 * matrices)
    assert total(invariant, "gemm", "flops") == total(fast, "gemm", "flops")


def check_attention():
    """Tiles of 64 below and on the diagonal: a bit more than half of T², 2 products forward, 7 backward."""
    pairs = 16 * H * (T * T + 64 * T) // 2
    for words, end in (((), "_bf16"), (("--attention", "f32"), "")):
        result = estimate(*words)
        near(total(result, "attention_forward" + end, "flops"), L * pairs * 2 * 2 * (C // H))
        backward = [total(result, f"attention_backward_{part}{end}", "flops") for part in ("keys", "queries")]
        near(sum(backward), L * pairs * 7 * 2 * (C // H))


def check_bytes():
    """Logits in f32, gradients in f32, conversions in between."""
    rows = 16 * T
    result = estimate()
    near(total(result, "cross_entropy", "bytes"), 8 * rows * V + 12 * rows)
    near(total(result, "convert", "bytes", "gradient of logits"), 6 * rows * V)
    near(total(result, "gemm", "bytes", "head forward"), 2 * (rows + V) * C + 4 * rows * V)
    near(total(result, "add_bias", "bytes"), L * (5 * 8 * rows * C + 4 * 5 * C))
    near(total(result, "bias_gelu", "bytes"), L * (12 * rows + 4) * 4 * C)
    f32 = estimate("--precision", "f32")
    assert not [k for k in f32["kernels"] if k["kernel"] == "convert"]
    near(total(f32, "gemm", "bytes", "head forward"), 4 * ((rows + V) * C + rows * V))


def check_times():
    result = estimate("--bandwidth-fraction", 1, "--tensor-fraction", 1, "--cuda-core-fraction", 1, "--least-us", 0)
    assert result["bound_s"] == result["predicted_s"]
    for kernel in result["kernels"]:
        peak = {"f32": 67e12, "bf16": 989e12}[kernel["unit"]]
        near(kernel["bound_s"], max(kernel["bytes"] / 4.8e12, kernel["flops"] / peak))
    near(result["bound_mfu"], result["model_flops"] / 989e12 / result["bound_s"])
    assumed = estimate()
    assert assumed["bound_s"] == result["bound_s"] < assumed["predicted_s"]


def check_names():
    """Every kernel is one of core/cuda, or a product of cuBLASLt."""
    sources = (ROOT / "core/cuda/kernels").glob("*.cu")
    known = set(re.findall(r"\b(\w+)\(const \w+Args ", "\n".join(source.read_text("utf-8") for source in sources)))
    for words in ((), ("--precision", "f32"), ("--batch.micro", 4)):
        used = {kernel["kernel"] for kernel in estimate(*words)["kernels"]} - {"gemm"}
        assert used <= known, used - known


def check_measured():
    result = estimate()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        line = {"bench": "step", "parameters": N, "tokens": 16 * T, "seconds": 2 * result["bound_s"]}
        file.write(json.dumps(line) + "\n")
        file.flush()
        near(estimate("--measured", file.name)["against"]["of_bound"], 2.0)
        assert run("--measured", file.name, "--batch.global", 32).returncode == 1
    assert run("--batch.micro", 3).returncode == 2
    assert "124,439,808" in run("--places").stdout


for check in (check_model, check_update, check_reduction, check_attention, check_bytes, check_times, check_names,
              check_measured):  # fmt: skip
    check()
    print("ok:", check.__name__)
