"""Files with one kind of damage each."""

from __future__ import annotations

import struct


def damaged(content, rng):
    """The file with one kind of damage: bytes changed, cut off, put in, moved, or numbers made huge."""
    data, n = bytearray(content), len(content)
    at = int(rng.integers(n))
    match int(rng.integers(7)):
        case 0:
            data[at] ^= 1 << int(rng.integers(8))
        case 1:
            del data[at:]
        case 2:
            data[at : at + 4] = rng.bytes(4)
        case 3:
            data[at:at] = rng.bytes(int(rng.integers(1, 40)))
        case 4:
            del data[at : at + int(rng.integers(1, 40))]
        case 5:
            data[at : at + 8] = struct.pack("<q", int(rng.choice([-1, 2**31 - 1, 2**40, 2**62])))
        case 6:
            # the text of a number, in headers of npy and safetensors
            digits = [i for i in range(n) if 48 <= data[i] < 58] or [at]
            data[digits[at % len(digits)]] = 48 + int(rng.integers(10))
    return bytes(data)
