"""Record what torch computes: `python make_optimizer_reference.py` writes optimizer_reference.json beside this file.

Needs torch; the tests need the numbers only. Everything is float64. Ten steps on the quadratic loss
sum(curvature (theta - centre)^2) / 2, whose gradient the test forms again from the recorded curvature and centre.
"""

import json
from pathlib import Path

import torch

STEPS = 10
LONG = 100
OPTIMIZERS = {
    "sgd": ("SGD", {"lr": 0.1}),
    "momentum": ("SGD", {"lr": 0.05, "momentum": 0.9}),
    "nesterov": ("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True}),
    "adam": ("Adam", {"lr": 0.05}),
    "adam_other": ("Adam", {"lr": 0.2, "betas": [0.6, 0.7], "eps": 0.01}),
    "adamw": ("AdamW", {"lr": 0.05, "weight_decay": 0.1}),
    "rmsprop": ("RMSprop", {"lr": 0.02}),
    "rmsprop_momentum": ("RMSprop", {"lr": 0.01, "alpha": 0.8, "eps": 0.001, "momentum": 0.7}),
}


def trajectory(
    name: str, keywords: dict, start: torch.Tensor, curvature: torch.Tensor, centre: torch.Tensor, steps: int
) -> list:
    theta = start.clone().requires_grad_()
    optimizer = getattr(torch.optim, name)([theta], **keywords)
    points = []
    for _ in range(steps):
        optimizer.zero_grad()
        (curvature * (theta - centre) ** 2 / 2).sum().backward()
        optimizer.step()
        points.append(theta.detach().tolist())
    return points


def loss_case(loss: str, output: torch.Tensor, target: torch.Tensor) -> dict:
    output = output.clone().requires_grad_()
    flat = target if loss == "mse_loss" else target.reshape(-1)
    value = getattr(torch.nn.functional, loss)(
        output if loss == "mse_loss" else output.reshape(-1, output.shape[-1]), flat
    )
    value.backward()
    return {
        "output": output.detach().tolist(),
        "target": target.tolist(),
        "value": value.item(),
        "gradient": output.grad.tolist(),
    }


def main() -> None:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(1)
    start, centre, curvature = torch.randn(4), torch.randn(4), torch.tensor([0.01, 0.3, 1.0, 5.0])
    record = {
        "torch": torch.__version__,
        "start": start.tolist(),
        "centre": centre.tolist(),
        "curvature": curvature.tolist(),
        "trajectories": {
            key: {
                "class": name,
                "keywords": keywords,
                "theta": points[:STEPS],
                f"theta_{LONG}": points[-1],
            }
            for key, (name, keywords) in OPTIMIZERS.items()
            for points in [trajectory(name, keywords, start, curvature, centre, LONG)]
        },
        "mse": loss_case("mse_loss", torch.randn(3, 2, 4), torch.randn(3, 2, 4)),
        "cross_entropy": loss_case("cross_entropy", 3 * torch.randn(3, 2, 4), torch.randint(4, (3, 2))),
    }
    Path(__file__).with_name("optimizer_reference.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
