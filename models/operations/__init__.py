"""Operations: a folder each, with everything that computes it. A model makes one call, `slots(ctx, q, k, ..)`.

slots/__init__.py     the declaration: the call, which kernels there are, what they take
slots/reference.py    the equation and the plain form in torch, to which every kernel is held
slots/cpu.c           its loops in C
slots/gpu.py          its kernels in Triton

A declaration is an `Operation` (operation.py), with `Loops` in C (in_c.py) and `Programs` in Triton (in_triton.py).
What no declaration fits is an autograd function by hand, in the folder's in_c.py or gpu.py.
"""

import chomsky_ladder.models.kernels.choose as _choose

assert _choose  # it imports every folder here in one order, whichever of them is asked for first
