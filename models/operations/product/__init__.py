"""Products of matrices in fp32 on a CPU in C, of one thread, for models/scans/products.py.

No `Operation`: linear layers of any model call products without a context, so that this stands among the libraries
that models/scans/products.py chooses from, and has no name in a record's backends. It has no autograd function of its
own either: those of models/scans/products.py multiply by it, forward and backward.
"""

from chomsky_ladder.models.operations.product.in_c import native_product as native_product
