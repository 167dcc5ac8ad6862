"""Does flossing before training help to learn? Adding and copying at T = 200, with and without, several seeds each.

``python -m benchmarks.commands.flossing [--seeds 5] [--quick]`` prints a table: the loss on held-out sequences after a
fixed budget of updates, by task, start and flossing. Learned means below half of what is reached without memory: 1/6
for adding, ``10 log 8 / 200`` for copying.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np

import elman
from elman.losses import Zero
from elman.regularizers import Flossing

H, T = 64, 200
STARTS = {"orthogonal": "orthogonal", "gaussian(1)": elman.initializers.gaussian(1.0)}


def task(name: str, n: int, rng: int) -> tuple[Any, Any, str, float]:
    """Inputs, targets, loss, and what is reached without memory."""
    if name == "adding":
        return *elman.tasks.adding(T, n, rng=rng), "mse", 1 / 6
    return *elman.tasks.copy_memory(T - 20, n, rng=rng), "cross_entropy", 10 * math.log(8) / T


def run(name: str, start: str, k: int, seed: int, epochs: int, floss_updates: int) -> tuple[float, float, float]:
    """Held-out loss at the end relative to no memory, mean of the k exponents before, and seconds."""
    began = time.perf_counter()
    x, y, loss, without = task(name, 1024, seed)
    held = task(name, 256, seed + 1000)[:2]
    channels = 1 if loss == "mse" else 10
    layer = elman.RNN(x.shape[2], H, weight_hh_init=STARTS[start], dtype="float32", rng=seed)
    net = elman.Network(layer, elman.Readout(H, channels, dtype="float32", rng=seed))
    x, held = x.astype(np.float32), (held[0].astype(np.float32), held[1])
    if loss == "mse":
        y, held = y.astype(np.float32), (held[0], held[1].astype(np.float32))
    if k:
        elman.fit(
            net, x, y, loss=Zero(loss), regularizers=[Flossing(k, sequences=4)], batch_size=32,
            optimizer=elman.Adam(1e-3), epochs=floss_updates // 32, progress=False, rng=seed,
        )  # fmt: skip
    history = elman.fit(
        net, x, y, loss=loss, optimizer=elman.Adam(1e-3), epochs=epochs, batch_size=32, validation=held, progress=False,
        rng=seed,
    )  # fmt: skip
    return history.validation_loss[-1] / without, min(history.validation_loss) / without, time.perf_counter() - began


def main(argv: list[str] | None = None) -> None:
    """Run all and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=60, help="of 32 updates each")
    parser.add_argument("--flossing", type=int, default=256, help="updates of flossing before training")
    parser.add_argument("--quick", action="store_true", help="one seed and one epoch, to see that it runs")
    options = parser.parse_args(argv)
    seeds, epochs = (1, 1) if options.quick else (options.seeds, options.epochs)
    updates = 32 if options.quick else options.flossing
    print(f"tanh network, H = {H}, T = {T}; {epochs * 32} updates of 32 sequences with Adam(1e-3), clipped to norm 1;")
    print(f"flossing: {updates} updates before; loss on 256 held-out sequences over that without memory")
    print(f"{'task':<8} {'start':<12} {'k':>3}  {'last, by seed':<40} {'median':>7} {'best':>7} learned{'s':>8}")
    for name in ("adding", "copying"):
        for start in STARTS:
            for k in (0, 8):
                found = [run(name, start, k, seed, epochs, updates) for seed in range(seeds)]
                last, best, seconds = zip(*found, strict=True)
                each, learned = " ".join(f"{value:.3f}" for value in last), sum(value < 0.5 for value in last)
                print(
                    f"{name:<8} {start:<12} {k:>3}  {each:<40} {np.median(last):>7.3f} {min(best):>7.3f} "
                    f"{learned:>5}/{seeds} {np.mean(seconds):>6.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
