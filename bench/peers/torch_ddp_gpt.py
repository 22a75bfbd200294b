#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of a GPT-2 under PyTorch's DistributedDataParallel over gloo, as a peer of `lockstep bench step`.

  torchrun --standalone --nproc-per-node 2 torch_ddp_gpt.py --batch-global 16 --batch-micro 8 …

One thread a rank, f32 or bf16 autocast, AdamW (fused), clip by global norm, random tokens: the same shapes and the same
work as the other side. Prints one line of JSON on rank 0.
"""

import argparse
import contextlib
import json
import math
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.c_attn(self.ln_1(x)).split(width, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, options):
        super().__init__()
        width = options.hidden
        self.wte, self.wpe = nn.Embedding(options.vocab, width), nn.Embedding(options.context, width)
        self.blocks = nn.Sequential(*(Block(width, options.heads) for _ in range(options.layers)))
        self.ln_f = nn.LayerNorm(width)
        for embedding in (self.wte, self.wpe):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.blocks(self.wte(tokens) + self.wpe.weight[: tokens.shape[1]])
        logits = self.ln_f(x) @ self.wte.weight.T
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def reduce_all(model, ranks):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= ranks
    for p, part in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()]), strict=True):
        p.grad.copy_(part.view_as(p))


def main():
    parser = argparse.ArgumentParser()
    for key, value in {"layers": 4, "hidden": 256, "heads": 8, "context": 256, "vocab": 256}.items():
        parser.add_argument(f"--{key}", type=int, default=value)
    parser.add_argument("--batch-global", type=int, default=16)
    parser.add_argument("--batch-micro", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32", help="bf16: autocast")
    parser.add_argument("--bucket-mib", type=float, default=25)
    parser.add_argument("--reduce", choices=["overlap", "after", "none"], default="overlap",
                        help="gradients during the backward pass, in one piece behind it, or not at all")  # fmt: skip
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = Gpt2(options)
    parallel = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True,
                                                  bucket_cap_mb=options.bucket_mib)  # fmt: skip
    run = torch.compile(parallel) if options.compile else parallel
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=True)
    leaves = options.batch_global // options.batch_micro // ranks
    generator = torch.Generator().manual_seed(rank)
    shape = (options.batch_micro, options.context + 1)
    batches = [torch.randint(options.vocab, shape, generator=generator) for _ in range(leaves)]

    seconds = []
    for step in range(options.repeats + 3):
        if step == 3:
            cpu = time.process_time()
        dist.barrier()
        began = time.perf_counter()
        optimizer.zero_grad(set_to_none=False)
        for i, batch in enumerate(batches):
            last = i + 1 == leaves and options.reduce == "overlap"
            with contextlib.nullcontext() if last else parallel.no_sync():
                with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16"):
                    loss = run(batch[:, :-1], batch[:, 1:])
                (loss / leaves).backward()
        if options.reduce == "after":
            reduce_all(model, ranks)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        slowest = torch.tensor(time.perf_counter() - began, dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        seconds.append(slowest.item())
    cpu = torch.tensor((time.process_time() - cpu) / options.repeats, dtype=torch.float64)
    dist.all_reduce(cpu)
    seconds = sorted(seconds[3:])
    if rank == 0:
        assert math.isfinite(loss.item()) and loss.item() < math.log(options.vocab) + 1
        median = seconds[len(seconds) // 2]
        tokens = options.batch_global * options.context
        line = {"peer": "torch-ddp-gloo", "torch": torch.__version__, "compile": options.compile,
                "precision": options.precision, "reduce": options.reduce,
                "ranks": ranks, "parameters": sum(p.numel() for p in model.parameters()),
                "seconds": median, "tokens_per_s": tokens / median, "cpu_s": cpu.item(), "loss": loss.item()}  # fmt: skip
        print(json.dumps(line), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
