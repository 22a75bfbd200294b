#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of a GPT-2 in PyTorch on one GPU, as a peer of `lockstep bench step --device cuda`.

  torch_cuda_gpt.py --layers 12 --hidden 768 --heads 12 --context 1024 --vocab 50257 --batch-global 16 --batch-micro 16

The model of torch_ddp_gpt.py, f32 or bf16 autocast, the fused AdamW, clip by global norm, random tokens: the same
shapes and the same work as the other side. Prints one line of JSON.
"""

import argparse
import json
import math
import time

import torch
from torch import nn
from torch_ddp_gpt import Gpt2


def used_bytes(device):
    """Of all of the device, as `lockstep bench step` counts them."""
    free, total = torch.cuda.mem_get_info(device)
    return total - free


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for key, value in {"layers": 12, "hidden": 768, "heads": 12, "context": 1024, "vocab": 50257}.items():
        parser.add_argument(f"--{key}", type=int, default=value)
    parser.add_argument("--batch-global", type=int, default=16)
    parser.add_argument("--batch-micro", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="bf16", help="bf16: autocast")
    parser.add_argument("--device", default="cuda", help="cpu tries this script where there is no GPU")
    options = parser.parse_args()

    on_gpu = options.device != "cpu"
    torch.manual_seed(0)
    model = Gpt2(options).to(options.device)
    run = torch.compile(model) if options.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=True)
    leaves = options.batch_global // options.batch_micro
    shape = (options.batch_micro, options.context + 1)
    batches = [torch.randint(options.vocab, shape).to(options.device) for _ in range(leaves)]

    def wait():
        if on_gpu:
            torch.cuda.synchronize()

    seconds = []
    for _ in range(options.repeats + 3):
        wait()
        began = time.perf_counter()
        optimizer.zero_grad(set_to_none=False)
        for batch in batches:
            with torch.autocast(options.device.split(":")[0], torch.bfloat16, enabled=options.precision == "bf16"):
                loss = run(batch[:, :-1], batch[:, 1:])
            (loss / leaves).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        wait()
        seconds.append(time.perf_counter() - began)
    seconds = sorted(seconds[3:])
    assert math.isfinite(loss.item()) and loss.item() < math.log(options.vocab) + 1, loss.item()
    median = seconds[len(seconds) // 2]
    tokens = options.batch_global * options.context
    line = {"peer": "torch", "torch": torch.__version__, "compile": options.compile, "precision": options.precision,
            "parameters": sum(p.numel() for p in model.parameters()), "tokens": tokens, "repeats": options.repeats,
            "seconds": median, "seconds_p10": seconds[len(seconds) // 10], "seconds_p90": seconds[len(seconds) * 9 // 10],
            "tokens_per_s": tokens / median, "device": options.device, "loss": loss.item()}  # fmt: skip
    if on_gpu:
        line |= {"device_bytes": used_bytes(options.device), "allocated_bytes": torch.cuda.max_memory_allocated()}
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
