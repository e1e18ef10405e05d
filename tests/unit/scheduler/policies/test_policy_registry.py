"""Policy names."""

from __future__ import annotations

import pytest

from octavo.errors import ConfigError
from octavo.scheduler.policies.fcfs import FirstComeFirstServed
from octavo.scheduler.policies.registry import make_policy


def test_fcfs_is_known_by_its_name() -> None:
    assert isinstance(make_policy("fcfs"), FirstComeFirstServed)


def test_an_unknown_policy_is_refused_with_the_known_names() -> None:
    with pytest.raises(ConfigError, match="unknown scheduler policy 'lifo'; known: fcfs, sjf, priority, fair"):
        make_policy("lifo")
