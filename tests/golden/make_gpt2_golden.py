#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes gpt2_tiny.json and gpt2_tiny.bin: what PyTorch computes, in f64, for a tiny GPT-2.

The weights are not stored: parameter NAME is 1 (weights of norms) or 0 plus N(0, 0.2²) drawn by
the rule of the initial weights with seed 11, wide enough that every term of a gradient matters.
gpt2_tiny.bin holds f32, little-endian: the logits, then the gradient of the summed loss of each
parameter in the order of `parameters`. Needs torch and numpy.
"""

import json
import pathlib
import sys
import types

import numpy as np
import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "peer"))
import torch_gpt2_reference as reference  # noqa: E402

CONFIG = {
    "n_layer": 2,
    "n_head": 4,
    "n_embd": 32,
    "n_inner": 128,
    "n_positions": 16,
    "vocab_size": 61,
    "layer_norm_epsilon": 1e-5,
}
SEED = 11
STD = 0.2
OPTIONS = types.SimpleNamespace(
    lr=0.01,
    beta1=0.9,
    beta2=0.95,
    eps=1e-8,
    weight_decay=0.1,
    no_decay="*.bias,*.ln_?.weight,*.wpe.weight",
    clip=1.0,
)


def parameter_shapes():
    width, inner = CONFIG["n_embd"], CONFIG["n_inner"]
    shapes = {
        "transformer.wte.weight": [CONFIG["vocab_size"], width],
        "transformer.wpe.weight": [CONFIG["n_positions"], width],
    }

    def add(name, weight, bias):
        shapes[name + ".weight"], shapes[name + ".bias"] = weight, [bias]

    for i in range(CONFIG["n_layer"]):
        block = f"transformer.h.{i}"
        add(block + ".ln_1", [width], width)
        add(block + ".attn.c_attn", [width, 3 * width], 3 * width)
        add(block + ".attn.c_proj", [width, width], width)
        add(block + ".ln_2", [width], width)
        add(block + ".mlp.c_fc", [width, inner], inner)
        add(block + ".mlp.c_proj", [inner, width], width)
    add("transformer.ln_f", [width], width)
    return shapes


def make_weights(shapes):
    weights = {}
    for name, shape in shapes.items():
        values = reference.initial_normal(name, int(np.prod(shape)), SEED, STD)
        if ".ln_" in name and name.endswith(".weight"):
            values = values + np.float32(1)
        weights[name] = torch.from_numpy(values).double().view(shape).requires_grad_()
    return weights


def main():
    shapes = parameter_shapes()
    weights = make_weights(shapes)
    generator = np.random.default_rng(5)
    tokens = generator.integers(0, CONFIG["vocab_size"], (3, 13))  # shorter than the context
    targets = generator.integers(0, CONFIG["vocab_size"], (3, 13))
    targets[0, 4] = targets[2, 10:] = reference.IGNORED
    inputs = torch.from_numpy(tokens), torch.from_numpy(targets)

    logits = reference.gpt2_logits(weights, CONFIG, inputs[0])
    summed, loss, valid = reference.loss_sum(logits, inputs[1])
    summed.backward()
    arrays = [logits.detach()] + [w.grad.clone() for w in weights.values()]
    flat = np.concatenate([a.numpy().ravel() for a in arrays]).astype("<f4")
    flat.tofile(HERE / "gpt2_tiny.bin")

    optimizer = reference.make_optimizer(weights, OPTIONS)
    for group in optimizer.param_groups:
        group["lr"] = OPTIONS.lr
    losses, norms = [], []
    for _ in range(5):
        optimizer.zero_grad()
        summed, loss_now, _ = reference.loss_sum(
            reference.gpt2_logits(weights, CONFIG, inputs[0]), inputs[1]
        )
        summed.backward()
        norms.append(reference.scale_gradients(weights, valid, OPTIONS.clip))
        optimizer.step()
        losses.append(loss_now / valid)

    golden = {
        "made_by": "tests/golden/make_gpt2_golden.py",
        "torch": torch.__version__,
        "config": CONFIG,
        "seed": SEED,
        "std": STD,
        "parameters": [{"name": name, "shape": shape} for name, shape in shapes.items()],
        "tokens": tokens.tolist(),
        "targets": targets.tolist(),
        "loss_sum": loss,
        "valid_tokens": valid,
        "optimizer": vars(OPTIONS),
        "adamw_losses": losses,
        "adamw_grad_norms": norms,
    }
    # One line a key: readable, and short in a diff.
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in golden.items()]
    (HERE / "gpt2_tiny.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
