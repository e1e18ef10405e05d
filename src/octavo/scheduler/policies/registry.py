"""Policy names to classes, imported when asked for."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.config.scheduler import SchedulerConfig
from octavo.config.tenant_weights import parse_tenant_weights
from octavo.errors import ConfigError
from octavo.registry import Registry
from octavo.scheduler.estimator import Estimator
from octavo.scheduler.policies.interface import Policy

POLICIES = Registry(
    "scheduler policy",
    {
        "fcfs": "octavo.scheduler.policies.fcfs:FirstComeFirstServed",
        "sjf": "octavo.scheduler.policies.sjf:ShortestJobFirst",
        "priority": "octavo.scheduler.policies.priority:Priority",
        "fair": "octavo.scheduler.policies.fair:Fair",
    },
    ConfigError,
)


def make_policy(name: str, estimator: Estimator | None = None, tenant_weights: Mapping[str, float] | None = None) -> Policy:
    """A new policy object. Raises ConfigError with the known names for an unknown one.

    estimator  the scheduler's own, for sjf; tenant_weights: for fair, 1 where a tenant has none
    """
    made = POLICIES.load(name)
    if name == "sjf":
        policy: Policy = made(estimator or Estimator())
    elif name == "fair":
        policy = made(tenant_weights or {})
    else:
        policy = made()
    return policy


def policy_for(config: SchedulerConfig, estimator: Estimator) -> Policy:
    """A new policy object as a configuration asks for it; estimator is the scheduler's own."""
    return make_policy(config.scheduler_policy, estimator, parse_tenant_weights(config.tenant_weights))
