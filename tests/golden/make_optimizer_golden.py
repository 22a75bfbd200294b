#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden weights of 100 updates by every optimizer under every schedule, from PyTorch:
python3 make_optimizer_golden.py (needs torch).

Writes optimizers.json {"torch": version, "options", "tensors": {name: {"shape", "offset"}}} and
optimizers.bin, little-endian f32, one after the other; offsets count elements. Computed in f64 from
inputs that are exact in f32. PyTorch has no LAMB: that one is written out from the paper.
"""

import json
import pathlib

import torch
from torch.optim import lr_scheduler

FOLDER = pathlib.Path(__file__).parent
STEPS, WARMUP = 100, 10
OPTIONS = {"steps": STEPS, "warmup": WARMUP, "peak": 0.02, "min_lr": 0.002, "beta1": 0.9, "beta2": 0.95,
           "eps": 1e-8, "weight_decay": 0.1, "momentum": 0.9}  # fmt: skip
SHAPES = {"mlp.weight": (7, 11), "mlp.bias": (5,)}  # the bias does not decay


class Lamb(torch.optim.Optimizer):
    """You et al., ICLR 2020, algorithm 2, φ(x) = x; the ratio is 1 where a norm is 0."""

    def __init__(self, groups, lr, betas, eps):
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for w in group["params"]:
                state = self.state[w]
                if not state:
                    state.update(t=0, m=torch.zeros_like(w), v=torch.zeros_like(w))
                state["t"] += 1
                state["m"].mul_(beta1).add_(w.grad, alpha=1 - beta1)
                state["v"].mul_(beta2).add_(w.grad**2, alpha=1 - beta2)
                m = state["m"] / (1 - beta1 ** state["t"])
                v = state["v"] / (1 - beta2 ** state["t"])
                u = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * w
                a, b = float(w.norm()), float(u.norm())
                w.sub_(u, alpha=group["lr"] * (a / b if a > 0 and b > 0 else 1.0))


def optimizers(groups):
    o = OPTIONS
    adam = {"lr": o["peak"], "betas": (o["beta1"], o["beta2"]), "eps": o["eps"]}
    return {
        "sgd": lambda: torch.optim.SGD(groups(), lr=o["peak"]),
        "momentum": lambda: torch.optim.SGD(groups(), lr=o["peak"], momentum=o["momentum"]),
        "nesterov": lambda: torch.optim.SGD(groups(), lr=o["peak"], momentum=o["momentum"], nesterov=True),
        "adam": lambda: torch.optim.Adam(groups(), **adam),
        "adamw": lambda: torch.optim.AdamW(groups(), **adam),
        "lamb": lambda: Lamb(groups(), **adam),
    }


def schedule(kind, optim):
    """PyTorch's own, with update k at its epoch k - 1: the peak is reached at update WARMUP."""
    lowest = OPTIONS["min_lr"] / OPTIONS["peak"]
    decay = STEPS // 10
    warm = lr_scheduler.LinearLR(optim, 1 / WARMUP, 1.0, WARMUP - 1)
    flat = lr_scheduler.ConstantLR(optim, 1.0, 1)
    after = {
        "constant": lambda: [flat],
        "linear": lambda: [lr_scheduler.LinearLR(optim, 1.0, lowest, STEPS - WARMUP)],
        "cosine": lambda: [lr_scheduler.CosineAnnealingLR(optim, STEPS - WARMUP, OPTIONS["min_lr"])],
        "wsd": lambda: [flat, lr_scheduler.LinearLR(optim, 1.0, lowest, decay)],
    }[kind]()
    milestones = [WARMUP - 1, STEPS - decay - 1][: len(after)]
    return lr_scheduler.SequentialLR(optim, [warm, *after], milestones)


def main():
    torch.manual_seed(20261202)
    torch.set_num_threads(1)
    tensors = {}
    for name, shape in SHAPES.items():
        tensors[f"{name}.start"] = torch.randn(*shape)
        tensors[f"{name}.gradients"] = torch.randn(STEPS, *shape) * torch.rand(STEPS, *([1] * len(shape)))

    weights = {}

    def groups():
        for name in SHAPES:
            weights[name] = torch.nn.Parameter(tensors[f"{name}.start"].double())
        return [
            {"params": [weights["mlp.weight"]], "weight_decay": OPTIONS["weight_decay"]},
            {"params": [weights["mlp.bias"]], "weight_decay": 0.0},
        ]

    for kind in ("constant", "linear", "cosine", "wsd"):
        for name, make in optimizers(groups).items():
            optim = make()
            rates = schedule(kind, optim)
            for step in range(STEPS):
                for key, weight in weights.items():
                    weight.grad = tensors[f"{key}.gradients"][step].double()
                optim.step()
                rates.step()
            for key, weight in weights.items():
                tensors[f"{name}.{kind}.{key}"] = weight.detach().float()

    index, offset = {}, 0
    with open(FOLDER / "optimizers.bin", "wb") as out:
        for name, tensor in tensors.items():
            index[name] = {"shape": list(tensor.shape), "offset": offset}
            out.write(tensor.contiguous().numpy().astype("<f4").tobytes())
            offset += tensor.numel()
    text = {"torch": torch.__version__, "options": OPTIONS, "tensors": index}
    (FOLDER / "optimizers.json").write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
