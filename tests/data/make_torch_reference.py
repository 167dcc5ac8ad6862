"""Records outputs and gradients of torch.nn.RNN on small cases, in float64: tests/data/torch_rnn.json.

    python tests/data/make_torch_reference.py

Biases and initial states are random and not zero: zero ones would hide that one of them is missing.
"""

import json
import platform
from pathlib import Path

import torch

CASES = [
    {"nonlinearity": phi, "bias": bias, "h0": h0, "T": T, "B": B, "D": D, "H": H}
    for phi in ("tanh", "relu")
    for bias in (True, False)
    for h0 in (True, False)
    for T, B, D, H in ((5, 3, 2, 4), (3, 1, 1, 9))
]


def record(case, seed):
    torch.manual_seed(seed)
    T, B, D, H = case["T"], case["B"], case["D"], case["H"]
    layer = torch.nn.RNN(D, H, nonlinearity=case["nonlinearity"], bias=case["bias"]).double()
    x = torch.randn(T, B, D, dtype=torch.float64, requires_grad=True)
    h0 = torch.randn(1, B, H, dtype=torch.float64, requires_grad=True) if case["h0"] else None
    d_output, d_hn = torch.randn(T, B, H, dtype=torch.float64), torch.randn(1, B, H, dtype=torch.float64)
    output, hn = layer(x, h0)
    ((output * d_output).sum() + (hn * d_hn).sum()).backward()
    arrays = {"x": x, "d_output": d_output, "d_hn": d_hn, "output": output, "hn": hn, "d_x": x.grad}
    if h0 is not None:
        arrays |= {"h0_value": h0, "d_h0": h0.grad}
    for name, p in layer.named_parameters():
        arrays |= {name: p, f"d_{name}": p.grad}
    return case | {name: a.detach().tolist() for name, a in arrays.items()}


def main():
    source = f"torch {torch.__version__} (CPU), {platform.machine()}, make_torch_reference.py"
    cases = [record(case, seed) for seed, case in enumerate(CASES)]
    path = Path(__file__).with_name("torch_rnn.json")
    path.write_text(json.dumps({"source": source, "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
