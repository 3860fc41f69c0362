"""Numbers of 16 bits as NumPy, which has no bf16, and PTX hold them."""

from typing import Any

import numpy as np

TYPES: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "bf16": np.uint16, "f16": np.uint16}
TYPES |= {f"{kind}{bits}": f"{'i' if kind == 's' else 'u'}{bits // 8}" for kind in "usb" for bits in (8, 16, 32, 64)}


def bf16_of(x: Any) -> Any:
    """Round to the nearest bf16, ties to even, and return its bits."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + np.uint64(0x7FFF) + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), rounded.astype(np.uint16))


def fp32_of(bits: Any) -> Any:
    return (np.asarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def halves(pair: Any) -> tuple[Any, Any]:
    """The two bf16 numbers of 32 bits, the lower first."""
    return fp32_of((pair & np.uint32(0xFFFF)).astype(np.uint16)), fp32_of((pair >> np.uint32(16)).astype(np.uint16))
