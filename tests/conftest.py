"""The hooks of every run. Processes that run tests also load the harness (support/every_test.py)."""

import pytest

from support.cases import pytest_collection_modifyitems  # noqa: F401  a hook: few cases of each test
from support.processor_seconds import *  # noqa: F403  hooks: the guard on what the tests cost


def pytest_configure(config: pytest.Config) -> None:
    """Leave torch out of a process that hands all tests to workers: its import would delay their start."""
    if not getattr(config.option, "numprocesses", None):
        from support import every_test

        config.pluginmanager.register(every_test)
