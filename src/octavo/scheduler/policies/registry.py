"""Policy names to classes, imported when asked for."""

from __future__ import annotations

import importlib

from octavo.errors import ConfigError
from octavo.scheduler.policies.interface import Policy

POLICIES = {"fcfs": "octavo.scheduler.policies.fcfs:FirstComeFirstServed"}


def make_policy(name: str) -> Policy:
    """A new policy object. Raises ConfigError with the known names for an unknown one."""
    target = POLICIES.get(name)
    if target is None:
        known = ", ".join(sorted(POLICIES))
        raise ConfigError(f"scheduler_policy is {name!r}; known policies: {known}", param="scheduler_policy")
    module, _, class_name = target.partition(":")
    policy: Policy = getattr(importlib.import_module(module), class_name)()
    return policy
