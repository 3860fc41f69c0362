"""`slstm_scan` through the CUDA extension of the xlstm package. It compiles for minutes, so never by itself."""

import importlib
import os
import shutil
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chomsky_ladder.models.kernels.kernel import cuda_module
from chomsky_ladder.models.operations.slstm.reference import Carried, Read, Weights, from_input

_MODULE = "xlstm.blocks.slstm.cell"
_TARGET, _DEBIAN = "targets/x86_64-linux", "lib/x86_64-linux-gnu"  # where toolkits have their folders


def xlstm_slstm_scan(read: Read, state: Carried, weights: Weights) -> tuple[Tensor, Carried]:
    """`slstm_scan` through the CUDA extension of the xlstm package, which nvcc compiles for each size at run time.

    It carries c, n and m where ours carries y = c / n and a = m + log n: c = y, n = 1 and m = a stand for the same, and
    n = 0 for a start with a = -inf.
    """
    W_HGJ, R_HGK, b_HG = weights
    h_BHK, y_BHK, a_BHK = state
    batch, _, heads, _ = read[0].shape
    inner = R_HGK.shape[-1]
    begun_BHK = a_BHK > -torch.inf
    carried = (h_BHK, y_BHK, torch.ones_like(y_BHK), a_BHK)
    states_4BD = torch.stack([torch.where(begun_BHK, z_BHK, 0).flatten(1) for z_BHK in carried])
    gates_LBG = from_input(read, W_HGJ).transpose(0, 1).flatten(2)
    scan = _xlstm_function(batch, heads, inner)
    all_4LBD = scan.apply(True, gates_LBG.contiguous(), states_4BD, R_HGK.mT.contiguous(), b_HG.flatten())
    h_BLHK = all_4LBD[0, 1:].transpose(0, 1).unflatten(2, (heads, inner))
    _, c_BHK, n_BHK, m_BHK = (z_BD.unflatten(1, (heads, inner)) for z_BD in all_4LBD[:, -1])
    return h_BLHK, (h_BLHK[:, -1], c_BHK / n_BHK, m_BHK + n_BHK.log())


@lru_cache
def _xlstm_function(batch: int, heads: int, inner: int) -> Any:
    cell = importlib.import_module(_MODULE)
    kinds = dict.fromkeys(("dtype", *(f"dtype_{part}" for part in "brwgsa")), "float32")
    sizes = {"hidden_size": heads * inner, "num_heads": heads, "batch_size": batch}
    config = cell.sLSTMCellConfig(**sizes, **kinds, backend="cuda", enable_automatic_mixed_precision=False)
    return cell.sLSTMCellFuncGenerator(True, config)


def missing() -> str:
    return cuda_module(_MODULE)() or no_toolkit()


def no_toolkit() -> str:
    """Why there is nothing to compile it with at run time: nvcc, and what its sources include and are linked with."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc = shutil.which("nvcc", path=f"{home}/bin") if home else shutil.which("nvcc")
    if not nvcc:
        return "no nvcc, which compiles it at run time"
    root = Path(nvcc).resolve().parents[1]
    if not any((root / folder / "cublas_v2.h").exists() for folder in ("include", _TARGET + "/include")):
        return f"no header of cuBLAS beside {nvcc}, which compiles it at run time"
    if not any((root / folder / "libcublas.so").exists() for folder in ("lib64", "lib", _DEBIAN, _TARGET + "/lib")):
        return f"no libcublas.so beside {nvcc}, which links it at run time"
    return ""
