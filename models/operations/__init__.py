"""Operations: a folder each, with everything that computes it. A model makes one call, `slots(ctx, q, k, ..)`.

slots/__init__.py     the declaration: the call, which kernels there are, what they take
slots/reference.py    the equation and the plain form in torch, to which every kernel is held
slots/cpu.c           its loops in C
slots/gpu.py          its kernels in Triton
slots/in_c.py         autograd functions by hand, where no declaration fits

A declaration is an `Operation` (operation.py), with `Loops` in C (in_c.py) and `Programs` in Triton (in_triton.py).
What no declaration fits is an autograd function by hand, in the folder's in_c.py or gpu.py, which says why. A kernel of
another package for an operation is in its folder, too.
"""

import chomsky_ladder.models.kernels.choose as _choose

assert _choose  # it imports every folder here in one order, whichever of them is asked for first
