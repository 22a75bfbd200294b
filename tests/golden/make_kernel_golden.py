#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden numbers for the kernels, from PyTorch: python3 make_kernel_golden.py (needs torch).

Writes kernels.json {"torch": version, "tensors": {name: {"shape", "offset"}}} and kernels.bin,
little-endian f32, one after the other; offsets count elements. Computed in f64 from inputs that are
exact in f32, except the optimizers, which are PyTorch's own f32.
"""

import json
import math
import pathlib

import torch
import torch.nn.functional as F

FOLDER = pathlib.Path(__file__).parent
tensors = {}


def keep(name, value):
    tensors[name] = value.detach().to(torch.float32).clone()


def draw(name, *shape, scale=1.0, shift=0.0):
    """A random input, stored, as an f64 leaf with the bits of its f32."""
    value = (torch.randn(*shape) * scale + shift).to(torch.float32)
    keep(name, value)
    return value.double().requires_grad_()


def layer_norm(name, rows, width, shift):
    x, w = draw(f"{name}.x", rows, width, shift=shift), draw(f"{name}.weight", width)
    b, dy = draw(f"{name}.bias", width), draw(f"{name}.y_grad", rows, width)
    y = F.layer_norm(x, (width,), w, b, 1e-5)
    y.backward(dy.detach())
    for key, value in {"y": y, "x_grad": x.grad, "weight_grad": w.grad, "bias_grad": b.grad}.items():
        keep(f"{name}.{key}", value)


def gelu(name, count):
    x, dy = draw(f"{name}.x", count, scale=3.0), draw(f"{name}.y_grad", count)
    y = F.gelu(x, approximate="tanh")
    y.backward(dy.detach())
    keep(f"{name}.y", y)
    keep(f"{name}.x_grad", x.grad)


def attention(name, batch, length, heads, width):
    model = heads * width
    qkv = draw(f"{name}.qkv", batch, length, 3 * model)
    dy = draw(f"{name}.y_grad", batch, length, model)
    q, k, v = (
        part.view(batch, length, heads, width).transpose(1, 2) for part in qkv.split(model, dim=2)
    )
    scores = q @ k.transpose(2, 3) / math.sqrt(width)
    scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf)
    y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, model)
    y.backward(dy.detach())
    keep(f"{name}.y", y)
    keep(f"{name}.log_sum_exp", scores.logsumexp(-1))
    keep(f"{name}.qkv_grad", qkv.grad)


def cross_entropy(name, rows, vocabulary, padded, smoothing):
    logits = draw(f"{name}.logits", rows, padded, scale=4.0)
    targets = torch.randint(0, vocabulary, (rows,))
    targets[rows // 3] = -100
    keep(f"{name}.targets", targets)
    loss = F.cross_entropy(
        logits[:, :vocabulary], targets, reduction="sum", label_smoothing=smoothing
    )
    loss.backward()
    keep(f"{name}.loss", loss.reshape(1))
    keep(f"{name}.logits_grad", logits.grad)


def optimizer(name, make, state_keys):
    w = torch.nn.Parameter(torch.randn(37))
    keep(f"{name}.w0", w)
    optim = make([w])
    for step in range(1, 4):
        w.grad = torch.randn(37)
        keep(f"{name}.g{step}", w.grad)
        optim.step()
        keep(f"{name}.w{step}", w)
    for key in state_keys:
        keep(f"{name}.{key}", optim.state[w][key])


def embedding(name, batch, length, vocabulary, width):
    tokens = torch.randint(0, vocabulary, (batch, length))
    keep(f"{name}.tokens", tokens)
    words, places = draw(f"{name}.words", vocabulary, width), draw(f"{name}.places", length, width)
    dy = draw(f"{name}.y_grad", batch, length, width)
    y = F.embedding(tokens, words) + places
    y.backward(dy.detach())
    keep(f"{name}.y", y)
    keep(f"{name}.words_grad", words.grad)
    keep(f"{name}.places_grad", places.grad)


def main():
    torch.manual_seed(20240611)
    torch.set_num_threads(1)
    layer_norm("layer_norm", 9, 65, shift=0.0)
    layer_norm("layer_norm_shifted", 5, 128, shift=100.0)
    gelu("gelu", 301)
    attention("attention_32", 2, 70, 2, 32)
    attention("attention_64", 1, 50, 2, 64)
    attention("attention_odd", 1, 19, 3, 5)
    cross_entropy("cross_entropy", 12, 61, 64, 0.0)
    cross_entropy("cross_entropy_smooth", 12, 61, 64, 0.1)
    adamw = {"lr": 1e-2, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1, "foreach": False}
    optimizer("adamw", lambda p: torch.optim.AdamW(p, **adamw), ["exp_avg", "exp_avg_sq"])
    sgd = {"lr": 1e-2, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "foreach": False}
    optimizer("sgd", lambda p: torch.optim.SGD(p, **sgd), ["momentum_buffer"])
    embedding("embedding", 2, 7, 11, 17)

    offset, index = 0, {}
    with open(FOLDER / "kernels.bin", "wb") as data:
        for name, value in tensors.items():
            index[name] = {"shape": list(value.shape), "offset": offset}
            data.write(value.numpy().astype("<f4").tobytes())
            offset += value.numel()
    document = {"torch": torch.__version__, "tensors": index}
    (FOLDER / "kernels.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
