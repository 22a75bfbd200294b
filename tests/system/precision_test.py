#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bf16 and fp16 runs: skipped updates, a loss scale at its end, sampling, and a change of precision."""
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import BIN, TINY, clean_environment, result_of, train, verify  # noqa: E402

OPTIONS = {**TINY, "steps": 12, "eval.every": 4}


def run(folder, name, ranks, code=0, **changes):
    options = {**OPTIONS, "run": folder / name, **{k.replace("__", "."): v for k, v in changes.items()}}
    log = folder / f"{name}.log"
    status = train(ranks, options, log)
    assert status == code, (status, log.read_text()[-3000:])
    return log.read_text()


def records(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def check_scaling(folder):
    """An overflow withholds an update, and neither t nor the schedule moves; the scale is kept by a save."""
    run(folder, "fp16", 2, 75, precision="fp16", loss_scale__init=2.0**24, loss_scale__max=2.0**24, pause_at=5)
    run(folder, "fp16", 3, precision="fp16", loss_scale__init=2.0**24, loss_scale__max=2.0**24, zero=1)
    run(folder, "fp16-alone", 0, precision="fp16", loss_scale__init=2.0**24, loss_scale__max=2.0**24)
    lines = records(folder / "fp16")
    fields = ("step", "loss", "grad_norm", "lr", "loss_scale", "skipped", "eval_loss", "tokens")
    pick = [[line.get(field) for field in fields] for line in lines]
    assert pick == [[line.get(field) for field in fields] for line in records(folder / "fp16-alone")]
    assert result_of(folder / "fp16")["weights_sha256"] == result_of(folder / "fp16-alone")["weights_sha256"]
    applied, skipped = 0, 0
    for line, after in zip(lines, [*lines[1:], None], strict=True):
        if line["grad_norm"] is None:
            skipped += 1
            assert line["lr"] == 0 and line["loss"] > 0, line
            assert after is None or after["loss_scale"] == line["loss_scale"] / 2, (line, after)
        else:
            applied += 1
            warmup = OPTIONS["optim.lr"] * min(applied, 5) / 5
            assert applied > 5 or abs(line["lr"] / warmup - 1) < 1e-6, line
        assert line["skipped"] == skipped, line
    assert 3 <= skipped < 12, skipped
    verify(folder / "fp16")


def check_end_of_scale(folder):
    text = run(folder, "stuck", 2, 81, precision="fp16", loss_scale__init=2.0**24, loss_scale__max=2.0**24,
               loss_scale__min=2.0**22)  # fmt: skip
    assert "not finite at the smallest loss scale" in text, text[-2000:]
    assert result_of(folder / "stuck")["code"] == 81


def check_change(folder):
    """bf16 -> f32 -> fp16: goes on from the masters, and says that the bits are others."""
    run(folder, "change", 2, 75, precision="bf16", pause_at=4, zero=1)
    assert result_of(folder / "change").get("bits_broken_at_step") is None
    weights = result_of(folder / "change")["weights_sha256"]
    text = run(folder, "change", 3, 75, precision="f32", pause_at=8)
    assert "precision was bf16 and is f32" in text, text
    assert result_of(folder / "change")["bits_broken_at_step"] == 4
    assert "NOTE optim" not in text, text
    text = run(folder, "change", 1, precision="fp16", zero=1)
    assert "precision was f32 and is fp16" in text, text
    assert result_of(folder / "change")["bits_broken_at_step"] == 8
    losses = [line["loss"] for line in records(folder / "change")]
    run(folder, "plain", 0)
    for ours, plain in zip(losses, [line["loss"] for line in records(folder / "plain")], strict=True):
        assert abs(ours - plain) < 0.02, (ours, plain)
    # The masters alone were carried over: steps = 4 leaves them as they were.
    run(folder, "same", 2, 75, precision="bf16", pause_at=4, zero=0)
    assert result_of(folder / "same")["weights_sha256"] == weights
    run(folder, "same", 2, 0, precision="f32", steps=4)
    assert result_of(folder / "same")["weights_sha256"] == weights
    text = run(folder, "same", 2, 0, precision="f32", steps=6, zero=1, optim__lr=1e-3)
    assert "optim.lr was 0.002 and is 0.001 from step 5 on" in text, text
    assert "zero was 0 and is 1" in text, text


def check_sample(folder):
    done = subprocess.run([BIN, "sample", folder / "fp16", "--prompt", "int ", "--tokens", "8", "--seed", "1"],
                          capture_output=True, env=clean_environment(), check=False)  # fmt: skip
    assert done.returncode == 0 and done.stdout.startswith(b"int "), done.stderr.decode()


def main():
    with tempfile.TemporaryDirectory(prefix="lockstep precision ") as name:
        folder = pathlib.Path(name)
        check_scaling(folder)
        print("fp16: updates with an overflow are withheld whole; the same on 2 ranks, then 3 with zero = 1, and alone")
        check_end_of_scale(folder)
        print("fp16: an overflow at loss_scale.min ends with 81")
        check_change(folder)
        print("bf16 -> f32 -> fp16: resumes from the masters, and says so")
        check_sample(folder)


if __name__ == "__main__":
    main()
