"""Tenant weights."""

from __future__ import annotations

import pytest

from octavo.config.engine import EngineConfig
from octavo.config.resolve import check_options
from octavo.config.scheduler import SchedulerConfig
from octavo.config.tenant_weights import parse_tenant_weights
from octavo.errors import ConfigError


def test_weights_are_read_in_order_with_spaces_and_equal_signs_in_names() -> None:
    assert parse_tenant_weights(" a=2 , b=c=0.5,") == {"a": 2.0, "b=c": 0.5}
    assert parse_tenant_weights(None) == parse_tenant_weights("") == {}


@pytest.mark.parametrize("text", ["a", "a=", "=2", "a=x", "a=0", "a=-1", "a=nan", "a=inf", "a=2000", "a=1,a=2"])
def test_what_is_no_weight_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="--tenant-weights") as caught:
        check_options(EngineConfig(scheduler=SchedulerConfig(tenant_weights=text)))
    assert caught.value.param == "tenant_weights"
