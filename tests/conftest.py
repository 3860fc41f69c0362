"""What holds for every test: one thread, and the same hypothesis examples every time."""

import torch
from hypothesis import Phase, settings

torch.set_num_threads(1)  # two beside a busy neighbour ran 3-16x slower
# No shrinking: an example is a whole batch, and the failing row is in the message.
settings.register_profile("batches", deadline=None, derandomize=True, max_examples=25, phases=[Phase.generate])
settings.load_profile("batches")
