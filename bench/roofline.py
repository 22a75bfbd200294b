#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a training step on one GPU must take at least, kernel by kernel: arithmetic, not a measurement.

  bench/roofline.py                                     gpt2-124m in bf16 on an H200
  bench/roofline.py --precision f32 --batch.global 16 --batch.micro 4
  bench/roofline.py --json > expected.json
  bench/roofline.py --measured line.json                holds a line of `lockstep bench step` against it

For every kernel that our layers queue (runtime/nn, optim; core/cuda): calls a step, operations, bytes, and

  bound      max(bytes / bandwidth, operations / peak): no implementation that moves these bytes is faster
  predicted  the same with the fractions of bandwidth and peaks that a kernel is assumed to reach, and
             no call faster than --least-us. The fractions are assumptions, to be replaced by measurements.

Bytes are what our kernels move if each array is read or written once a kernel and a cache keeps what one
kernel reads twice: separate biases and conversions, logits in f32, gradients in f32. What one kernel leaves
in the L2 cache for the next is not counted as saved. Not counted: copies of tokens, work of the host, the
one thread that adds losses in row order, communication (one rank).

MFU counts the model's operations, (6 N + 12 · layers · context · hidden) a token with N all parameters
(Chowdhery et al., PaLM, 2022, appendix B: attention without the mask), whatever the kernels really do.
"""

import argparse
import dataclasses
import json
import sys

# NVIDIA H200 SXM: 4.8 TB/s; 67 TFLOP/s in f32; on tensor cores 989 in TF32 and 1,979 in bf16 with sparsity
# (data sheet "NVIDIA H200 Tensor Core GPU", 2023), half of that on dense matrices.
DEVICES = {"h200": {"bandwidth": 4.8e12, "f32": 67e12, "tf32": 494e12, "bf16": 989e12}}

PRESETS = {  # runtime/trainer/train_keys.cpp
    "gpt2-tiny": {"layers": 4, "hidden": 128, "heads": 4, "context": 128, "vocab": 256},
    "gpt2-3m": {"layers": 4, "hidden": 256, "heads": 8, "context": 256, "vocab": 256},
    "gpt2-124m": {"layers": 12, "hidden": 768, "heads": 12, "context": 1024, "vocab": 50257},
}

BLOCK = 4096  # elements of a block of the arena
GROUP_ROWS = 64  # kGroupRows
TILE = 64  # kAttentionTile
HEAD_WIDTHS = (32, 64, 96, 128)  # kAttentionWidths

# Operations an element of the kernels on CUDA cores; an exponential or a division counts as one. They are
# far below what the bytes take, so that their exact number does not matter.
ELEMENT_OPS = {"embedding": 1, "add": 1, "add_bias": 1, "layer_norm": 8, "layer_norm_groups": 5,
               "layer_norm_backward": 14, "bias_gelu": 10, "gelu_backward": 16, "cross_entropy": 8,
               "convert": 1, "column_groups": 1, "adamw": 18, "block_square_sums": 2}  # fmt: skip


@dataclasses.dataclass
class Work:
    """All calls of one kernel in one place of the step."""

    kernel: str  # as launched: the names of core/cuda, `gemm` is cuBLASLt's
    place: str
    calls: int
    flops: float  # of all calls
    bytes: float  # of all calls
    unit: str  # whose peak bounds it: f32, tf32, bf16


def parameters_of(model):
    """(name, elements, is a matrix) in forward order; matrices have the run's precision."""
    c, f = model["hidden"], model["ffn"]
    yield "wte", model["vocab"] * c, True
    yield "wpe", model["context"] * c, True
    for layer in range(model["layers"]):
        for name, elements in (("ln_1.weight", c), ("ln_1.bias", c), ("c_attn.weight", 3 * c * c),
                               ("c_attn.bias", 3 * c), ("attn.c_proj.weight", c * c), ("attn.c_proj.bias", c),
                               ("ln_2.weight", c), ("ln_2.bias", c), ("c_fc.weight", c * f), ("c_fc.bias", f),
                               ("mlp.c_proj.weight", f * c), ("mlp.c_proj.bias", c)):  # fmt: skip
            yield f"h.{layer}.{name}", elements, name.startswith(("c_", "attn.", "mlp.")) and name.endswith("weight")
    yield "ln_f.weight", c, False
    yield "ln_f.bias", c, False


def bucket_count(sizes, first=1 << 20, others=25 << 20):
    """Buckets of the arena, from the last parameter on, each closed when it is full (bucket_plan.cpp)."""
    buckets, filled = 0, 0
    for size in reversed(sizes):
        filled += -(-size // BLOCK) * BLOCK * 4
        if filled >= (others if buckets else first):
            buckets, filled = buckets + 1, 0
    return buckets + (filled > 0)


class Step:
    """The kernels of one step, in the order of a leaf's forward, backward, and the update."""

    def __init__(self, model, options):
        self.model = model
        self.half = options.precision != "f32"
        self.size = 2 if self.half else 4  # bytes of what a product reads
        self.gemm_unit = "bf16" if self.half else ("tf32" if options.tf32 else "f32")
        self.attention = options.attention
        self.leaves = options.batch_global // options.batch_micro
        self.sequences = options.batch_micro
        self.rows = options.batch_micro * model["context"]
        # invariant: each leaf's gradient is written on its own and added behind it; else later leaves add.
        self.invariant = options.reduction == "invariant"
        self.adding_leaves = 0 if self.invariant else self.leaves - 1
        self.all = []
        self.forward()
        self.backward()
        self.update()

    def put(self, kernel, place, bytes_, flops=0.0, calls=1, unit="f32"):
        """Of one leaf, `calls` times `bytes_` and `flops`."""
        times = calls * self.leaves
        self.all.append(Work(kernel, place, times, flops * times, bytes_ * times, unit))

    def rounded(self, place, columns, calls):
        """What a product reads, in its type."""
        if self.half:
            n = self.rows * columns
            self.put("convert", place, n * 6, ELEMENT_OPS["convert"] * n, calls)

    def gemm(self, place, m, n, k, calls, add=0):
        """`add`: in how many of all leaves the result is added to what is there."""
        self.put("gemm", place, self.size * (m * k + k * n) + 4 * m * n, 2 * m * n * k, calls, self.gemm_unit)
        self.all[-1].bytes += 4.0 * m * n * calls * add

    def elements(self, kernel, place, n, bytes_, calls=1):
        self.put(kernel, place, bytes_, ELEMENT_OPS[kernel] * n, calls)

    def forward(self):
        m, rows = self.model, self.rows
        c, f, v, layers = m["hidden"], m["ffn"], m["vocab"], m["layers"]
        n = rows * c
        self.put("check_indices", "tokens", 4 * rows, rows)
        self.elements("embedding", "forward", n, 4 * rows + self.size * (n + m["context"] * c) + 4 * n)
        norm = 8 * n + 8 * c + 8 * rows
        self.elements("layer_norm", "ln_1, ln_2", n, norm, 2 * layers)
        self.rounded("inputs, C wide", c, 3 * layers + 1)
        self.rounded("inputs, ffn wide", f, layers)
        for name, inputs, outputs in (("c_attn", c, 3 * c), ("attn.c_proj", c, c), ("c_fc", c, f),
                                      ("mlp.c_proj", f, c)):  # fmt: skip
            self.gemm(f"{name} forward", rows, outputs, inputs, layers)
        self.elements("add_bias", "c_attn", 3 * n, 24 * n + 12 * c, layers)
        self.elements("add_bias", "c_proj, twice", n, 8 * n + 4 * c, 2 * layers)
        self.attention_kernel("attention_forward", "", 2, 16 * n + 4 * rows * m["heads"])
        self.elements("bias_gelu", "c_fc", rows * f, 12 * rows * f + 4 * f, layers)
        self.elements("add", "residual stream", n, 12 * n, 2 * layers)
        self.elements("layer_norm", "ln_f", n, norm)
        self.gemm("head forward", rows, v, c, 1)
        self.put("check_indices", "targets", 4 * rows, rows)
        self.elements("cross_entropy", "loss and gradient", rows * v, 8 * rows * v + 12 * rows)
        self.put("loss_sums", "loss", 8 * rows, rows)

    def attention_kernel(self, kernel, place, products, bytes_):
        """Whole tiles below and on the diagonal, heads padded to a kernel's width."""
        m = self.model
        width = next(w for w in HEAD_WIDTHS if w >= m["hidden"] // m["heads"])
        tiles = -(-m["context"] // TILE)
        pairs = tiles * (tiles + 1) // 2 * self.sequences * m["heads"]
        flops = pairs * products * 2 * TILE * TILE * width
        name = kernel + ("_bf16" if self.attention == "bf16" else "")
        self.put(name, place or "all heads", bytes_, flops, m["layers"], self.attention)

    def linear_backward(self, name, inputs, outputs):
        rows, layers = self.rows, self.model["layers"]
        self.bias_sums(name, outputs)
        self.gemm(f"{name} weight gradient", inputs, outputs, rows, layers, self.adding_leaves)
        self.gemm(f"{name} input gradient", rows, inputs, outputs, layers)

    def bias_sums(self, name, columns):
        rows, layers = self.rows, self.model["layers"]
        groups = -(-rows // GROUP_ROWS) * columns
        self.elements("column_groups", f"{name} bias", rows * columns, 4 * (rows * columns + groups), layers)
        self.group_total(f"{name} bias", groups, columns, layers)

    def group_total(self, place, groups, columns, calls):
        self.put("group_total", place, 4 * (groups + columns), groups, calls)
        self.all[-1].bytes += 4.0 * columns * calls * self.adding_leaves

    def norm_backward(self, place, calls, add):
        rows, c = self.rows, self.model["hidden"]
        n, groups = rows * c, -(-rows // GROUP_ROWS) * c
        self.elements("layer_norm_groups", place, n, 8 * n + 8 * rows + 8 * groups, calls)
        self.elements("layer_norm_backward", place, n, (16 if add else 12) * n + 8 * rows + 4 * c, calls)
        self.group_total(place, groups, c, 2 * calls)

    def backward(self):
        m, rows = self.model, self.rows
        c, f, v, t, layers = m["hidden"], m["ffn"], m["vocab"], m["context"], m["layers"]
        n = rows * c
        self.rounded("gradient of logits", v, 1)
        self.gemm("head weight gradient", v, c, rows, 1, self.adding_leaves)
        self.gemm("head input gradient", rows, c, v, 1)
        self.norm_backward("ln_f", 1, add=False)
        self.rounded("gradients, C wide", c, 2 * layers)
        self.rounded("gradients, 3C wide", 3 * c, layers)
        self.rounded("gradients, ffn wide", f, layers)
        self.linear_backward("mlp.c_proj", f, c)
        self.elements("gelu_backward", "c_fc", rows * f, 12 * rows * f, layers)
        self.linear_backward("c_fc", c, f)
        self.norm_backward("ln_1, ln_2", 2 * layers, add=True)
        self.linear_backward("attn.c_proj", c, c)
        sums = 4 * rows * m["heads"]
        self.put("attention_row_sums", "all heads", 8 * n + sums, 2 * n, layers)
        self.attention_kernel("attention_backward_keys", "", 4, 16 * n + 2 * sums + 8 * n)
        self.attention_kernel("attention_backward_queries", "", 3, 16 * n + 2 * sums + 4 * n)
        self.linear_backward("c_attn", c, 3 * c)
        self.put("check_indices", "tokens, backward", 4 * rows, rows)
        self.all.append(Work("fill_zero", "wpe", self.leaves - self.adding_leaves, 0.0,
                             4.0 * t * c * (self.leaves - self.adding_leaves), "f32"))  # fmt: skip
        self.put("token_order", "wte", 8 * rows, rows * rows)
        # At most: a row of the table is read and written once, however many tokens name it.
        self.put("token_gradient", "wte", 8 * rows + 4 * n + 8 * min(rows, v) * c, n)
        self.put("position_gradient", "wpe", 4 * n + 8 * t * c, n)

    def update(self):
        parameters = list(parameters_of(self.model))
        sizes = [elements for _, elements, _ in parameters]
        arena = sum(-(-size // BLOCK) * BLOCK for size in sizes)
        if self.invariant and self.leaves > 1:
            adds = self.leaves - 1
            self.all.append(Work("add", "sums of leaves", adds * bucket_count(sizes), adds * arena,
                                 12 * adds * arena, "f32"))  # fmt: skip
        self.all.append(Work("block_square_sums", "norm", 1, 2 * arena, 4 * arena + 8 * arena // BLOCK, "f32"))
        # f32 weights or masters, gradients, two moments read; all but gradients written.
        self.all.append(Work("adamw", "update", len(sizes), ELEMENT_OPS["adamw"] * sum(sizes), 28 * sum(sizes), "f32"))
        halves = [elements for _, elements, matrix in parameters if matrix and self.half]
        if halves:
            self.all.append(Work("convert", "masters to matrices", len(halves), sum(halves), 6 * sum(halves), "f32"))


def model_flops(model, parameters, sequences):
    """Of one step, forward and backward, by the convention above."""
    tokens = sequences * model["context"]
    return tokens * (6 * parameters + 12 * model["layers"] * model["context"] * model["hidden"])


def timed(work, peaks, options):
    memory = work.bytes / peaks["bandwidth"]
    arithmetic = work.flops / peaks[work.unit]
    fraction = options.cuda_core_fraction if work.unit == "f32" else options.tensor_fraction
    predicted = max(memory / options.bandwidth_fraction, arithmetic / fraction, work.calls * options.least_us * 1e-6)
    return {**dataclasses.asdict(work), "bound_s": max(memory, arithmetic),
            "limit": "memory" if memory >= arithmetic else work.unit, "predicted_s": predicted}  # fmt: skip


def estimate(options):
    model = {**PRESETS[options.preset], "ffn": 0}
    for key in model:
        model[key] = getattr(options, f"model_{key}") or model[key]
    model["ffn"] = model["ffn"] or 4 * model["hidden"]
    peaks = DEVICES[options.device]
    kernels = [timed(work, peaks, options) for work in Step(model, options).all]
    parameters = sum(elements for _, elements, _ in parameters_of(model))
    flops = model_flops(model, parameters, options.batch_global)
    peak = peaks["bf16" if options.precision != "f32" else "tf32" if options.tf32 else "f32"]
    tokens = options.batch_global * model["context"]
    totals = {f"{name}_s": sum(kernel[f"{name}_s"] for kernel in kernels) for name in ("bound", "predicted")}
    result = {"preset": options.preset, "model": model, "precision": options.precision, "tf32": options.tf32,
              "attention": options.attention, "reduction": options.reduction,
              "batch": {"global": options.batch_global, "micro": options.batch_micro}, "device": options.device,
              "peaks": peaks, "assumed": {"bandwidth_fraction": options.bandwidth_fraction,
                                          "tensor_fraction": options.tensor_fraction,
                                          "cuda_core_fraction": options.cuda_core_fraction,
                                          "least_us": options.least_us},
              "measured": False, "parameters": parameters, "tokens": tokens, "model_flops": flops,
              "flops": sum(kernel["flops"] for kernel in kernels),
              "bytes": sum(kernel["bytes"] for kernel in kernels), **totals}  # fmt: skip
    for name in ("bound", "predicted"):
        result[f"{name}_mfu"] = flops / peak / totals[f"{name}_s"]
        result[f"{name}_tokens_per_s"] = tokens / totals[f"{name}_s"]
    return {**result, "mfu_peak": peak, "kernels": kernels}


def by_kernel(kernels):
    """The places of a kernel added up, but for the products, which differ most."""
    rows = {}
    for kernel in kernels:
        name = kernel["kernel"]
        if name == "gemm":
            name = "gemm head" if kernel["place"].startswith("head") else f"gemm {kernel['place'].split(' ', 1)[1]}"
        row = rows.setdefault(name, {"calls": 0, "flops": 0.0, "bytes": 0.0, "bound_s": 0.0, "predicted_s": 0.0, "limits": []})
        for key in ("calls", "flops", "bytes", "bound_s", "predicted_s"):
            row[key] += kernel[key]
        row["limits"].append((kernel["bound_s"], kernel["limit"]))
    for row in rows.values():
        row["limit"] = max(row.pop("limits"))[1]
    return rows


def table(result, places):
    rows = ({f"{k['kernel']}: {k['place']}": k for k in result["kernels"]} if places
            else by_kernel(result["kernels"]))  # fmt: skip
    yield "| kernel | calls | GFLOP | MB | bound µs | limit | predicted µs | share |"
    yield "|---|--:|--:|--:|--:|---|--:|--:|"
    for name, row in sorted(rows.items(), key=lambda item: -item[1]["predicted_s"]):
        yield (f"| {name} | {row['calls']} | {row['flops'] / 1e9:,.1f} | {row['bytes'] / 1e6:,.1f} | "
               f"{row['bound_s'] * 1e6:,.0f} | {row['limit']} | {row['predicted_s'] * 1e6:,.0f} | "
               f"{row['predicted_s'] / result['predicted_s']:.1%} |")  # fmt: skip
    yield (f"| **all** | {sum(row['calls'] for row in rows.values())} | {result['flops'] / 1e9:,.1f} | "
           f"{result['bytes'] / 1e6:,.1f} | {result['bound_s'] * 1e6:,.0f} | | {result['predicted_s'] * 1e6:,.0f} | |")  # fmt: skip
    yield ""
    yield (f"{result['parameters']:,} parameters, {result['tokens']:,} tokens a step, {result['model_flops'] / 1e12:.2f} "
           f"TFLOP by the model. Bound {result['bound_s'] * 1e3:.1f} ms (MFU {result['bound_mfu']:.1%}, "
           f"{result['bound_tokens_per_s']:,.0f} tokens/s), predicted {result['predicted_s'] * 1e3:.1f} ms "
           f"(MFU {result['predicted_mfu']:.1%}, {result['predicted_tokens_per_s']:,.0f} tokens/s) of "
           f"{result['mfu_peak'] / 1e12:,.0f} TFLOP/s. No GPU has measured any of this.")  # fmt: skip


def against(result, path):
    """The last line of `lockstep bench step`: the same work, and its time beside ours."""
    with open(path, encoding="utf-8") as lines:
        line = json.loads(lines.read().strip().splitlines()[-1])
    for key in ("parameters", "tokens"):
        if line[key] != result[key]:
            sys.exit(f"{path}: {key} is {line[key]:,}, here {result[key]:,}: give the same model and batch")
    mfu = result["model_flops"] / result["mfu_peak"] / line["seconds"]
    return {"seconds": line["seconds"], "mfu": mfu, "of_bound": line["seconds"] / result["bound_s"],
            "of_predicted": line["seconds"] / result["predicted_s"]}  # fmt: skip


def read_options(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=PRESETS, default="gpt2-124m")
    for key in ("layers", "hidden", "heads", "ffn", "vocab", "context"):
        parser.add_argument(f"--model.{key}", dest=f"model_{key}", type=int, help="instead of the preset's")
    parser.add_argument("--batch.global", dest="batch_global", type=int, default=16, help="sequences a step")
    parser.add_argument("--batch.micro", dest="batch_micro", type=int, default=16, help="of them in a leaf")
    parser.add_argument("--precision", choices=["f32", "bf16", "fp16"], default="bf16")
    parser.add_argument("--tf32", action="store_true", help="f32 products in TF32; ours are not")
    parser.add_argument("--attention", choices=["f32", "bf16"],
                        help="products of attention [bf16 with --precision bf16, as in training, else f32]")  # fmt: skip
    parser.add_argument("--reduction", choices=["invariant", "ordered", "fast"], default="invariant")
    parser.add_argument("--device", choices=DEVICES, default="h200")
    for name, value, what in (("bandwidth", 0.85, "memory's bandwidth"), ("tensor", 0.65, "tensor cores' peak"),
                              ("cuda-core", 0.6, "CUDA cores' peak")):  # fmt: skip
        parser.add_argument(f"--{name}-fraction", type=float, default=value, help=f"of {what}, assumed [{value}]")
    parser.add_argument("--least-us", type=float, default=2.5, help="of any call, assumed [2.5]")
    parser.add_argument("--places", action="store_true", help="a row a place instead of a kernel")
    parser.add_argument("--json", action="store_true", help="one object with a list of kernels by place")
    parser.add_argument("--measured", metavar="FILE", help="a line of `lockstep bench step` to hold against it")
    options = parser.parse_args(words)
    if options.batch_micro < 1 or options.batch_global < 1 or options.batch_global % options.batch_micro:
        parser.error("batch.micro divides batch.global")
    options.attention = options.attention or ("bf16" if options.precision == "bf16" else "f32")
    return options


def main():
    options = read_options(sys.argv[1:])
    result = estimate(options)
    if options.measured:
        result["against"] = against(result, options.measured)
    if options.json:
        print(json.dumps(result, indent=1))
        return
    print("\n".join(table(result, options.places)))
    if options.measured:
        print("measured {seconds:.4f} s: MFU {mfu:.1%}, {of_bound:.2f} × the bound, {of_predicted:.2f} × predicted".format(
            **result["against"]))  # fmt: skip


if __name__ == "__main__":
    main()
