#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a GPT-2 in PyTorch by the same rules as `lockstep train`, from the same first weights.

  lockstep train --run RUN --data.source text:TEXT --steps 0 …
  lockstep ckpt export RUN --to EXPORT --step 0
  torch_gpt2_reference.py --export EXPORT --text TEXT --steps 200 … > reference.jsonl

Every step gives one JSON line {step, tokens, loss, grad_norm, lr[, eval_loss]}, to be held against
RUN/metrics.jsonl; --against does so and fails beyond --tolerance. --data-facts prints what the
text is cut into and stops. Nothing here is shared with Lockstep's own code: text, samples, order,
loss, decay groups and schedule are written again from their definitions.

Needs torch, numpy and safetensors.
"""

import argparse
import fnmatch
import hashlib
import json
import math
import os
import stat
import sys

import numpy as np
import torch
import torch.nn.functional as F

IGNORED = -100

# ---- random numbers ------------------------------------------------------------------------------


def philox4x32(counter, key):
    """Philox4x32-10 (Salmon et al. 2011) over arrays: four counters, two keys, four results."""
    low32 = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    c = [np.asarray(x, dtype=np.uint64) & low32 for x in counter]
    k = [int(key[0]) & 0xFFFFFFFF, int(key[1]) & 0xFFFFFFFF]
    for _ in range(10):
        product0 = np.uint64(0xD2511F53) * c[0]
        product1 = np.uint64(0xCD9E8D57) * c[2]
        c = [
            (product1 >> shift) ^ c[1] ^ np.uint64(k[0]),
            product1 & low32,
            (product0 >> shift) ^ c[3] ^ np.uint64(k[1]),
            product0 & low32,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def initial_normal(name, count, seed, std):
    """The first `count` values of parameter `name`: N(0, std²) by Box and Muller, f32."""
    index = np.arange(count, dtype=np.uint64)
    name_key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")
    x = philox4x32(
        [index, index >> np.uint64(32), np.full(count, seed >> 32), np.zeros(count)],
        [seed, name_key],
    )
    radius = np.sqrt(-2.0 * np.log((x[0].astype(np.float64) + 1.0) / 2.0**32))
    angle = 2.0 * np.pi * (x[1].astype(np.float64) / 2.0**32)
    return (radius * np.cos(angle) * std).astype(np.float32)


# ---- text ----------------------------------------------------------------------------------------


def files_below(folder):
    """Relative paths (bytes) of the text's files, in byte order."""
    found = []

    def enter(relative):
        with os.scandir(os.path.join(folder, relative) if relative else folder) as entries:
            for entry in entries:
                if entry.name.startswith(b"."):
                    continue
                path = relative + b"/" + entry.name if relative else entry.name
                if entry.is_dir(follow_symlinks=False):
                    enter(path)
                elif stat.S_ISREG(entry.stat().st_mode):  # follows a link; a dangling one raises
                    found.append(path)

    enter(b"")
    return sorted(found)


def is_held_back(relative):
    digest = hashlib.sha256(relative).digest()
    return int.from_bytes(digest[:8], "big") >= 0xF333333333333334


def read_streams(text):
    """The training and the held-back tokens: two arrays of bytes; and the facts about them."""
    path = os.fsencode(text)
    if not os.path.isdir(path):
        data = open(path, "rb").read()
        cut = len(data) - len(data) // 20
        return as_tokens(data[:cut]), as_tokens(data[cut:]), {"files": 1, "bytes": len(data)}
    train, held = [], []
    paths = files_below(path)
    for relative in paths:
        content = open(os.path.join(path, relative), "rb").read()
        (held if is_held_back(relative) else train).append(content)
    facts = {
        "files": len(paths),
        "bytes": sum(map(len, train)) + sum(map(len, held)),
        "files_held_back": len(held),
    }
    return as_tokens(b"".join(train)), as_tokens(b"".join(held)), facts


def as_tokens(data):
    return np.frombuffer(data, dtype=np.uint8).astype(np.int64)


class Samples:
    """Consecutive windows of `context` tokens; targets are one token later."""

    def __init__(self, stream, context):
        self.stream = stream
        self.context = context
        self.count = max(0, math.ceil((len(stream) - 1) / context))

    def batch(self, indices, rows):
        """Inputs and targets [rows, context] of the samples; missing rows have no targets."""
        inputs = np.zeros((rows, self.context), dtype=np.int64)
        targets = np.full((rows, self.context), IGNORED, dtype=np.int64)
        for row, index in enumerate(indices):
            begin = int(index) * self.context
            window = self.stream[begin : begin + self.context]
            following = self.stream[begin + 1 : begin + 1 + self.context]
            inputs[row, : len(window)] = window
            targets[row, : len(following)] = following
        return torch.from_numpy(inputs), torch.from_numpy(targets)


def epoch_order(count, seed, epoch):
    index = np.arange(count, dtype=np.uint64)
    x = philox4x32(
        [index, index >> np.uint64(32), np.full(count, epoch), np.zeros(count)],
        [seed, seed >> 32],
    )
    return np.argsort(x[0] + (x[1] << np.uint64(32)), kind="stable")


# ---- model ---------------------------------------------------------------------------------------


def gpt2_logits(weights, config, tokens):
    """tokens [B, T] → logits [B, T, V], with weights under Hugging Face's names."""
    batch, length = tokens.shape
    width, heads = config["n_embd"], config["n_head"]
    epsilon = config["layer_norm_epsilon"]

    def norm(x, name):
        return F.layer_norm(x, (width,), weights[name + ".weight"], weights[name + ".bias"], epsilon)

    def linear(x, name):
        return x @ weights[name + ".weight"] + weights[name + ".bias"]

    x = weights["transformer.wte.weight"][tokens] + weights["transformer.wpe.weight"][:length]
    for i in range(config["n_layer"]):
        block = f"transformer.h.{i}"
        qkv = linear(norm(x, block + ".ln_1"), block + ".attn.c_attn")
        q, k, v = (
            part.view(batch, length, heads, width // heads).transpose(1, 2)
            for part in qkv.split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(batch, length, width)
        x = x + linear(y, block + ".attn.c_proj")
        hidden = F.gelu(linear(norm(x, block + ".ln_2"), block + ".mlp.c_fc"), approximate="tanh")
        x = x + linear(hidden, block + ".mlp.c_proj")
    return norm(x, "transformer.ln_f") @ weights["transformer.wte.weight"].T


def loss_sum(logits, targets, smoothing=0.0):
    """Summed token losses (for the gradient), their f64 sum (for the log) and the valid tokens."""
    losses = F.cross_entropy(
        logits.flatten(0, 1),
        targets.flatten(),
        ignore_index=IGNORED,
        reduction="none",
        label_smoothing=smoothing,
    )
    return losses.sum(), losses.detach().double().sum().item(), int((targets != IGNORED).sum())


# ---- training ------------------------------------------------------------------------------------


def decays(name, no_decay):
    patterns = [pattern.strip() for pattern in no_decay.split(",")]
    return not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def learning_rate(update, options):
    """The rate of update 1, 2, …, as f32."""
    peak = options.lr
    minimum = 0.1 * peak if options.min_lr is None else options.min_lr
    total = options.steps if options.total is None else options.total
    warmup = min(options.warmup, total)
    update = min(update, max(total, 1))
    if update <= warmup:
        rate = peak * update / warmup
    elif options.schedule == "constant":
        rate = peak
    else:
        progress = (update - warmup) / (total - warmup) if total > warmup else 1.0
        rate = minimum + (peak - minimum) * 0.5 * (1.0 + math.cos(math.pi * progress))
    return float(np.float32(rate))


def make_optimizer(weights, options):
    groups = [
        {
            "params": [w for name, w in weights.items() if decays(name, options.no_decay) == decay],
            "weight_decay": options.weight_decay if decay else 0.0,
        }
        for decay in (True, False)
    ]
    return torch.optim.AdamW(
        groups, lr=0.0, betas=(options.beta1, options.beta2), eps=options.eps, foreach=False
    )


def scale_gradients(weights, tokens, clip):
    """Makes sums over tokens the gradient of the mean, clipped; returns the norm before the clip."""
    squares = sum(w.grad.double().square().sum().item() for w in weights.values())
    norm = math.sqrt(squares) / tokens
    factor = np.float32(clip / norm) if 0 < clip < norm else np.float32(1)
    for w in weights.values():
        w.grad.mul_(float(np.float32(1.0 / tokens))).mul_(float(factor))
    return norm


def evaluate(weights, config, held, options):
    count = min(options.eval_batches * options.batch_global, held.count)
    total, tokens = 0.0, 0
    with torch.no_grad():
        for begin in range(0, count, options.batch_micro):
            rows = range(begin, min(begin + options.batch_micro, count))
            inputs, targets = held.batch(rows, options.batch_micro)
            _, loss, valid = loss_sum(gpt2_logits(weights, config, inputs), targets)
            total, tokens = total + loss, tokens + valid
    return total / tokens if tokens else None


def train(weights, config, samples, held, options):
    """Yields one record a step."""
    optimizer = make_optimizer(weights, options)
    steps_an_epoch = math.ceil(samples.count / options.batch_global)
    data_seed = options.seed if options.data_seed is None else options.data_seed
    order, order_epoch = None, None
    all_tokens, updates = 0, 0
    for step in range(1, options.steps + 1):
        epoch, place = divmod(step - 1, steps_an_epoch)
        if epoch != order_epoch:
            order, order_epoch = epoch_order(samples.count, data_seed, epoch), epoch
        window = order[place * options.batch_global : (place + 1) * options.batch_global]

        optimizer.zero_grad()
        total, tokens = 0.0, 0
        for begin in range(0, len(window), options.batch_micro):
            leaf = window[begin : begin + options.batch_micro]
            inputs, targets = samples.batch(leaf, options.batch_micro)
            summed, loss, valid = loss_sum(
                gpt2_logits(weights, config, inputs), targets, options.smoothing
            )
            summed.backward()
            total, tokens = total + loss, tokens + valid

        all_tokens += tokens
        record = {"step": step, "tokens": all_tokens, "loss": 0.0, "grad_norm": 0.0, "lr": 0.0}
        if tokens > 0:
            updates += 1
            rate = learning_rate(updates, options)
            record |= {"loss": total / tokens, "lr": rate}
            record["grad_norm"] = scale_gradients(weights, tokens, options.clip)
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
        if held.count and (step % options.eval_every == 0 or step == options.steps):
            record["eval_loss"] = evaluate(weights, config, held, options)
        yield record


def as_line(record):
    fields = [
        f'"{key}": {value}' if isinstance(value, int) else f'"{key}": {np.float32(value):.9g}'
        for key, value in record.items()
        if value is not None
    ]
    return "{" + ", ".join(fields) + "}"


# ---- comparison ----------------------------------------------------------------------------------


def compare(records, path, tolerance):
    """Prints the largest relative difference of each field; true if all are within `tolerance`."""
    theirs = {}
    for line in open(path):
        if line.strip():
            record = json.loads(line)
            theirs[record["step"]] = record  # the last line of a step wins
    missing = [record["step"] for record in records if record["step"] not in theirs]
    worst = {}
    for record in records:
        other = theirs.get(record["step"], {})
        for key in ("tokens", "loss", "grad_norm", "lr", "eval_loss"):
            mine = record.get(key)
            if mine is None and other.get(key) is None:
                continue
            if mine is None or other.get(key) is None:
                difference = math.inf
            else:
                difference = abs(other[key] - mine) / max(abs(mine), 1e-30)
            worst[key] = max(worst.get(key, (0.0, 0)), (difference, record["step"]))
    print(f"{len(records)} steps against {path}", file=sys.stderr)
    for key, (difference, step) in worst.items():
        print(f"  {key}: relative difference up to {difference:.3g} (step {step})", file=sys.stderr)
    if missing:
        print(f"  steps missing there: {missing}", file=sys.stderr)
    return not missing and all(difference <= tolerance for difference, _ in worst.values())


# ---- command -------------------------------------------------------------------------------------


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--export", help="folder with model.safetensors and config.json of step 0")
    parser.add_argument("--text", required=True, help="file or folder; a token is a byte")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--context", type=int, help="default: n_positions of config.json")
    parser.add_argument("--batch-global", type=int, default=16, help="sequences")
    parser.add_argument("--batch-micro", type=int, default=4, help="sequences")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data-seed", type=int, help="default: the seed")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--beta1", type=float, default=0.9)
    parser.add_argument("--beta2", type=float, default=0.95)
    parser.add_argument("--eps", type=float, default=1e-8)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--no-decay", default="*.bias,*.ln_?.weight,*.wpe.weight")
    parser.add_argument("--clip", type=float, default=1.0, help="0: off")
    parser.add_argument("--smoothing", type=float, default=0.0)
    parser.add_argument("--schedule", choices=["constant", "cosine"], default="cosine")
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--total", type=int, help="default: the steps")
    parser.add_argument("--min-lr", type=float, help="default: a tenth of the rate")
    parser.add_argument("--eval-every", type=int, default=100)
    parser.add_argument("--eval-batches", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--against", help="a metrics.jsonl to compare with")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="relative, for --against")
    parser.add_argument("--data-facts", action="store_true", help="print the data's facts and stop")
    return parser.parse_args()


def print_data_facts(samples, held, facts, options):
    seed = options.seed if options.data_seed is None else options.data_seed
    facts |= {"samples": samples.count, "samples_held_back": held.count}
    for epoch in (0, 1):
        begin = epoch_order(samples.count, seed, epoch)[:3]
        facts[f"epoch_{epoch}_begins"] = [int(i) for i in begin]
    print(json.dumps(facts))


def main():
    options = parse_arguments()
    torch.set_num_threads(options.threads)
    train_stream, held_stream, facts = read_streams(options.text)
    config = json.load(open(os.path.join(options.export, "config.json"))) if options.export else {}
    context = options.context or config.get("n_positions")
    if not context:
        sys.exit("give --context or --export")
    samples, held = Samples(train_stream, context), Samples(held_stream, context)
    if options.data_facts:
        return print_data_facts(samples, held, facts, options)
    if not options.export:
        sys.exit("give --export, the folder with the weights of step 0")
    if samples.count == 0:
        sys.exit("the text has no training sample")

    from safetensors.torch import load_file

    weights = load_file(os.path.join(options.export, "model.safetensors"))
    weights = {name: w.float().requires_grad_() for name, w in weights.items()}
    records = []
    for record in train(weights, config, samples, held, options):
        print(as_line(record), flush=True)
        records.append(record)
    if options.against and not compare(records, options.against, options.tolerance):
        sys.exit(1)


if __name__ == "__main__":
    main()
