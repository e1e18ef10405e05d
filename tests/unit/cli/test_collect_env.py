"""octavo collect-env: complete, and silent about secrets."""

from __future__ import annotations

import pytest

from octavo.cli.collect_env import facts


def test_facts_name_versions_and_limits_but_no_values_of_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_API_KEY", "s3cret")
    found = dict(facts())
    assert {"octavo", "python", "cpu", "threads", "memory", "cache", "numpy"} <= set(found)
    assert "OCTAVO_API_KEY" in found["variables"] and "s3cret" not in str(found)
