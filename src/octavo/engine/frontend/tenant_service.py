"""TenantService: what each tenant has been given, for metrics and bills."""

from __future__ import annotations

from dataclasses import dataclass

MAX_NAMED_TENANTS = 100
OTHER_TENANTS = "_other"
"""Stands for all tenants beyond the first MAX_NAMED_TENANTS: a label per invented `user` would swamp whoever scrapes it."""


@dataclass(slots=True)
class TenantTotals:
    """Counters of one tenant. prompt_tokens leaves out what came from the prefix cache, which cached_tokens counts."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generation_tokens: int = 0
    shed: int = 0


class TenantService:
    """Totals by name."""

    def __init__(self) -> None:
        self._totals: dict[str, TenantTotals] = {}

    def of(self, tenant: str) -> TenantTotals:
        """The totals that a tenant's service is added to."""
        totals = self._totals.get(tenant)
        if totals is None:
            name = tenant if len(self._totals) < MAX_NAMED_TENANTS else OTHER_TENANTS
            totals = self._totals.setdefault(name, TenantTotals())
        return totals

    def items(self) -> list[tuple[str, TenantTotals]]:
        return list(self._totals.items())
