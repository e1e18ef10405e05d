"""Totals per tenant."""

from __future__ import annotations

from octavo.engine.frontend.tenant_service import MAX_NAMED_TENANTS, OTHER_TENANTS, TenantService


def test_tenants_beyond_the_first_hundred_share_one_entry() -> None:
    service = TenantService()
    for number in range(MAX_NAMED_TENANTS + 50):
        service.of(f"t{number}").requests += 1
    service.of("t3").requests += 1
    totals = dict(service.items())
    assert len(totals) == MAX_NAMED_TENANTS + 1
    assert totals["t3"].requests == 2 and totals[OTHER_TENANTS].requests == 50
