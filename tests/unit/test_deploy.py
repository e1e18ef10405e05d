"""What lies under deploy/ fits the server: options, routes, metrics and names that it speaks of exist."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.fakes_server import FakeEngine

from octavo.cli.serve import serve
from octavo.config.server import ServerConfig
from octavo.engine.frontend.ledger import Ledger, RequestRecord
from octavo.engine.frontend.metrics import Metrics
from octavo.engine.wire.messages import CoreStats
from octavo.sequence import FinishReason
from octavo.server.app import create_app
from octavo.server.middleware.auth import PUBLIC_PATHS

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "octavo"
TOGGLES: list[dict[str, Any]] = [
    {},
    {"podMonitor": True, "autoscaling": True},
    {
        "keysSecret": "",
        "model": "owner/name",
        "extraArgs": ["--max-num-seqs=8", "--log-level=debug"],
        "nodeSelector": {"a": "b"},
    },
]


def render(template: str, values: Mapping[str, Any]) -> str:
    """The few constructs of Helm's templates that the chart uses; anything else is an error. `make check-deploy` asks helm."""

    def value(expression: str, dot: Any) -> str:
        name, *filters = [part.strip() for part in expression.split("|")]
        found = dot if name == "." else "demo" if name == ".Release.Name" else values[name.removeprefix(".Values.")]
        for each in filters:
            found = json.dumps(found) if each in ("toJson", "quote") else pytest.fail(f"unknown filter {each}")
        return str(found)

    lines: list[str] = []
    shown: list[bool] = []
    source = template.splitlines()
    index = 0
    while index < len(source):
        line = source[index]
        command = re.fullmatch(r"\{\{- (if not|if|range|end)(?: \.Values\.(\w+))? ?\}\}", line.strip())
        if command and command[1] == "end":
            shown.pop()
        elif command and command[1] == "range":
            for item in values[command[2]] if all(shown) else ():
                lines.append(re.sub(r"\{\{ (.+?) \}\}", lambda match, dot=item: value(match[1], dot), source[index + 1]))  # type: ignore[misc]
            index += 1
            shown.append(True)
        elif command:
            shown.append(bool(values[command[2]]) == (command[1] == "if"))
        elif all(shown):
            lines.append(re.sub(r"\{\{ (.+?) \}\}", lambda match: value(match[1], None), line))
        index += 1
    assert not shown
    return "\n".join(lines)


def manifests() -> list[tuple[str, list[Any]]]:
    """(name, objects) of the plain manifests, and of the chart under each set of values."""
    plain = [
        each
        for name in ("octavo", "autoscaling")
        for each in yaml.safe_load_all((DEPLOY / f"kubernetes/{name}.yaml").read_text())
    ]
    found = [("kubernetes", plain)]
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    for toggles in TOGGLES:
        assert set(toggles) <= set(defaults)
        texts = [render(path.read_text(), {**defaults, **toggles}) for path in sorted((CHART / "templates").glob("*.yaml"))]
        objects = [each for text in texts for each in yaml.safe_load_all(text) if each is not None]
        found.append((f"helm {toggles}", objects))
    return found


@pytest.fixture(scope="module")
def routes() -> set[str]:
    app = create_app(FakeEngine(), ServerConfig(), model_names=["m"])
    return {str(getattr(route, "path", "")) for route in app.router.routes}


@pytest.mark.parametrize(("name", "objects"), manifests(), ids=lambda value: value if isinstance(value, str) else "")
def test_manifests_fit_together_and_fit_the_server(name: str, objects: list[Any], routes: set[str]) -> None:
    by_kind: dict[str, list[Any]] = {}
    for each in objects:
        assert each["apiVersion"] and each["metadata"]["name"]
        by_kind.setdefault(each["kind"], []).append(each)
    (workload,) = by_kind["StatefulSet"]
    pod = workload["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert workload["spec"]["selector"]["matchLabels"] == labels
    for service in by_kind["Service"]:
        assert service["spec"]["selector"] == labels and service["spec"]["ports"][0]["targetPort"] == "http"
    headless = [service for service in by_kind["Service"] if service["spec"].get("clusterIP") == "None"]
    assert [service["metadata"]["name"] for service in headless] == [workload["spec"]["serviceName"]]
    (container,) = pod["spec"]["containers"]
    assert {"name": "http", "containerPort": 8000} in container["ports"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in PUBLIC_PATHS & routes and container[probe]["httpGet"]["port"] == "http"
    assert container["livenessProbe"]["httpGet"]["path"] == "/health"
    assert container["securityContext"]["readOnlyRootFilesystem"] and pod["spec"]["securityContext"]["runAsNonRoot"]
    options = parsed(container["args"])
    assert options["port"] == 8000 and options["host"] == "0.0.0.0"
    assert pod["spec"]["terminationGracePeriodSeconds"] > options["shutdown_timeout"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    claims = [claim["metadata"]["name"] for claim in workload["spec"]["volumeClaimTemplates"]]
    assert sorted(mounts) == sorted([volume["name"] for volume in pod["spec"]["volumes"]] + claims)
    if options["api_keys"] is not None:
        assert options["api_keys"].startswith(mounts["keys"]) and options["usage_db"].startswith(mounts["data"])
    for monitor in by_kind.get("PodMonitor", ()):
        assert monitor["spec"]["selector"]["matchLabels"] == labels
        assert all(end["path"] in routes and end["port"] == "http" for end in monitor["spec"]["podMetricsEndpoints"])
    for scaler in by_kind.get("HorizontalPodAutoscaler", ()):
        assert scaler["spec"]["scaleTargetRef"]["name"] == workload["metadata"]["name"]
        (rule,) = yaml.safe_load((DEPLOY / "kubernetes/adapter-rules.yaml").read_text())["rules"]["custom"]
        assert scaler["spec"]["metrics"][0]["pods"]["metric"]["name"] == rule["name"]["as"]


def parsed(arguments: list[str]) -> dict[str, Any]:
    """The options that `octavo serve` reads from these arguments. Raises click.UsageError for one that it has not."""
    assert arguments[0] == "serve"
    context: click.Context = serve.make_context("octavo serve", list(arguments[1:]))
    return context.params


def test_the_unit_and_the_image_start_the_server_as_it_is() -> None:
    unit = (DEPLOY / "systemd/octavo.service").read_text()
    command = re.search(r"^ExecStart=\S+ (.+)$", unit, re.MULTILINE)
    assert command is not None
    timeout = re.search(r"^TimeoutStopSec=(\d+)s$", unit, re.MULTILINE)
    assert timeout is not None and int(timeout[1]) > parsed(shlex.split(command[1]))["shutdown_timeout"]
    image = (DEPLOY / "Containerfile").read_text()
    start = re.search(r"^CMD (\[.+\])$", image, re.MULTILINE)
    assert start is not None and parsed(json.loads(start[1]))["host"] == "0.0.0.0"
    assert re.search(r"^USER 10001", image, re.MULTILINE) and "/health'" in image
    for copied in re.findall(r"^COPY (?!--)(.+) \S+$", image, re.MULTILINE):
        assert all((DEPLOY.parent / path).exists() for path in copied.split()), copied


@pytest.fixture(scope="module")
def samples() -> dict[str, set[str]]:
    """Each sample that the server exports -> the names of its labels."""
    ledger = Ledger()
    registry = Metrics(ledger, "m").registry
    ledger.core_reported(CoreStats(num_blocks=1))
    ledger.open(RequestRecord("r", 1, 1, 1, arrival_s=0.0, estimated_s=1.0))
    ledger.started("r", 1.0)
    ledger.close("r", FinishReason.LENGTH, 2.0)
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


def expressions() -> list[tuple[str, str]]:
    """(where, PromQL) of every alert and every panel."""
    groups = yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text())["groups"]
    found = [(rule["alert"], rule["expr"]) for group in groups for rule in group["rules"]]
    board = json.loads((DEPLOY / "grafana/octavo.json").read_text())
    found += [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel["targets"]]
    return found + [("variable", each["query"]) for each in board["templating"]["list"] if each["type"] == "query"]


@pytest.mark.parametrize(("where", "expression"), expressions())
def test_dashboards_and_alerts_read_what_the_server_exports(where: str, expression: str, samples: dict[str, set[str]]) -> None:
    names = re.findall(r"\bocta\w+:\w+", expression)
    assert names or expression.startswith("up{"), where
    assert set(names) <= set(samples)
    labels = {label for name in names for label in samples[name]} | {"instance", "job"}
    used = set(re.findall(r"(\w+)=~?\"", expression))
    for group in re.findall(r"by \(([^)]*)\)", expression):
        used |= {label.strip() for label in group.split(",")}
    assert used <= labels


def test_every_alert_says_what_is_wrong_and_most_are_tried() -> None:
    rules = [
        rule for group in yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text())["groups"] for rule in group["rules"]
    ]
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] in ("warning", "critical") for rule in rules)
    trials = yaml.safe_load((DEPLOY / "prometheus/alerts_test.yaml").read_text())["tests"]
    tried = {case["alertname"] for trial in trials for case in trial["alert_rule_test"] if case["exp_alerts"]}
    assert tried <= {rule["alert"] for rule in rules} and len(tried) >= 6
