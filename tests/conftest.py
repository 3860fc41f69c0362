"""The hooks of every run, and the same examples of hypothesis each time. support/every_test.py sets up the tests."""

import pytest
from hypothesis import Phase, settings

from support.cases import pytest_collection_modifyitems  # noqa: F401  a hook: few cases of each test
from support.processor_seconds import *  # noqa: F403  hooks: the guard on what the tests cost

# No shrinking: an example is a whole batch, and the failing row is in the message.
for profile, examples in {"some": 5, "all": 25}.items():  # `scripts/test --all` takes the latter
    settings.register_profile(profile, deadline=None, derandomize=True, max_examples=examples, phases=[Phase.generate])
settings.load_profile("some")


def pytest_configure(config: pytest.Config) -> None:
    """Leave torch out of a process that hands all tests to workers: its import would delay their start."""
    if not getattr(config.option, "numprocesses", None):
        from support import every_test

        config.pluginmanager.register(every_test)
