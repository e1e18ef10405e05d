"""Policy names to classes, imported when asked for."""

from __future__ import annotations

from octavo.errors import ConfigError
from octavo.registry import Registry
from octavo.scheduler.policies.interface import Policy

POLICIES = Registry("scheduler policy", {"fcfs": "octavo.scheduler.policies.fcfs:FirstComeFirstServed"}, ConfigError)


def make_policy(name: str) -> Policy:
    """A new policy object. Raises ConfigError with the known names for an unknown one."""
    policy: Policy = POLICIES.load(name)()
    return policy
