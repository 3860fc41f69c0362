"""Every test of a model starts from the same seed; what Triton's interpreter is asked for it is asked at once."""

import pytest

from support.cases import asked_for
from support.layers import seeded as seeded
from support.triton_kernels import interpreted


@pytest.fixture(scope="module")
def failures(request: pytest.FixtureRequest) -> dict[str, str]:
    """Return what is wrong with each case of a module that this session interprets. Other cases are missing."""
    module = request.module
    return interpreted(module.__file__, asked_for(request, module.test_interpreted_on_a_cpu))
