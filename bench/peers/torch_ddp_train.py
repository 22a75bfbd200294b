#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a GPT-2 under PyTorch's DistributedDataParallel over gloo by the rules of `lockstep train`.

  torchrun --standalone --nproc-per-node 2 torch_ddp_train.py --export EXPORT --text TEXT --steps 200 …

Text, order of the samples, loss, decay, clip and schedule are those of tests/peer/torch_gpt2_reference.py,
and so are the flags and the lines it prints; here the leaves of a step are spread over the ranks.
"""

import contextlib
import json
import math
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/peer"))
import torch_gpt2_reference as reference  # noqa: E402


class Gpt2(nn.Module):
    def __init__(self, weights, config):
        super().__init__()
        self.config = config
        self.names = list(weights)
        self.values = nn.ParameterList(weights.values())

    def weights(self):
        return dict(zip(self.names, self.values))

    def forward(self, inputs, targets):
        return reference.loss_sum(reference.gpt2_logits(self.weights(), self.config, inputs), targets)


def own_leaves(window, options):
    """Micro-batches of this rank: as many on every rank, at the end of an epoch perhaps empty ones."""
    leaves = options.batch_global // options.batch_micro // dist.get_world_size()
    begin = dist.get_rank() * leaves * options.batch_micro
    return [window[i : i + options.batch_micro]
            for i in range(begin, begin + leaves * options.batch_micro, options.batch_micro)]  # fmt: skip


def over_ranks(loss, tokens):
    both = torch.tensor([loss, tokens], dtype=torch.float64)
    dist.all_reduce(both)
    return both[0].item(), int(both[1])


def gradients_of(parallel, samples, leaves, options):
    """Leaves the mean over ranks of their summed gradients; returns loss and tokens over all ranks."""
    total, tokens = 0.0, 0
    for number, leaf in enumerate(leaves):
        is_last = number + 1 == len(leaves)
        with contextlib.nullcontext() if is_last else parallel.no_sync():
            summed, loss, valid = parallel(*samples.batch(leaf, options.batch_micro))
            summed.backward()
        total, tokens = total + loss, tokens + valid
    return over_ranks(total, tokens)


@torch.no_grad()
def evaluate(model, held, options):
    count = min(options.eval_batches * options.batch_global, held.count)
    micro, ranks = options.batch_micro, dist.get_world_size()
    total, tokens = 0.0, 0
    for begin in range(dist.get_rank() * micro, count, ranks * micro):
        _, loss, valid = model(*held.batch(range(begin, min(begin + micro, count)), micro))
        total, tokens = total + loss, tokens + valid
    total, tokens = over_ranks(total, tokens)
    return total / tokens


def train(model, samples, held, options):
    """Yields one record a step, on every rank."""
    optimizer = reference.make_optimizer(model.weights(), options)
    parallel = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    steps_an_epoch = math.ceil(samples.count / options.batch_global)
    data_seed = options.seed if options.data_seed is None else options.data_seed
    orders = {}
    all_tokens = 0
    for step in range(1, options.steps + 1):
        epoch, place = divmod(step - 1, steps_an_epoch)
        if epoch not in orders:
            orders = {epoch: reference.epoch_order(samples.count, data_seed, epoch)}
        window = orders[epoch][place * options.batch_global : (place + 1) * options.batch_global]

        optimizer.zero_grad(set_to_none=False)
        loss, tokens = gradients_of(parallel, samples, own_leaves(window, options), options)
        all_tokens += tokens
        rate = reference.learning_rate(step, options)
        # DDP has divided by the ranks.
        norm = reference.scale_gradients(model.weights(), tokens / dist.get_world_size(), options.clip)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        record = {"step": step, "tokens": all_tokens, "loss": loss / tokens, "grad_norm": norm, "lr": rate}
        if step % options.eval_every == 0 or step == options.steps:
            record["eval_loss"] = evaluate(model, held, options)
        yield record


def main():
    options = reference.parse_arguments()
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo")
    if options.batch_global // options.batch_micro % dist.get_world_size() != 0:
        sys.exit("give every rank the same number of leaves")
    config = json.loads(pathlib.Path(options.export, "config.json").read_text())
    train_stream, held_stream, _ = reference.read_streams(options.text)
    samples, held = (reference.Samples(stream, config["n_positions"]) for stream in (train_stream, held_stream))
    weights = load_file(os.path.join(options.export, "model.safetensors"))
    model = Gpt2({name: nn.Parameter(weight.float()) for name, weight in weights.items()}, config)
    for record in train(model, samples, held, options):
        if dist.get_rank() == 0:
            print(reference.as_line(record), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
