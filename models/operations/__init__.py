"""Operations: a folder each, with everything that computes it. A model makes one call, `slots(ctx, q, k, ..)`.

slots/__init__.py     the declaration: the call, which kernels there are, what they take (operation.py, in_c.py)
slots/reference.py    the equation and the plain form in torch, to which every kernel is held
slots/cpu.c           its loops in C
slots/gpu.py          its kernels in Triton
"""

import chomsky_ladder.models.kernels.choose as _choose

assert _choose  # it imports every folder here in one order, whichever of them is asked for first
