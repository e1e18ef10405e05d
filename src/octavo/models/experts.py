"""Experts: a mixture of experts in the place of a layer's MLP."""

from __future__ import annotations

from typing import Generic

from octavo.config.model import ExpertsConfig, ModelConfig
from octavo.loader.parameter import Location, Part
from octavo.models.blocks import MLP, is_gelu
from octavo.models.family import ExpertNames
from octavo.models.source import ParameterSource
from octavo.ops.interface import Ops, Tensor, Vector, Weight


class Experts(Generic[Weight, Vector]):
    """The sum of the MLPs that a token's router chooses, each times its weight (Shazeer et al., 2017), and of one that every
    token goes to, if there is one."""

    def __init__(
        self,
        config: ModelConfig,
        experts: ExpertsConfig,
        source: ParameterSource[Weight, Vector],
        layer: int,
        names: ExpertNames,
    ) -> None:
        hidden, prefix, gguf = config.hidden_size, f"model.layers.{layer}", f"blk.{layer}"
        self._config = experts
        router = Part(f"{prefix}.{names.router}", experts.num_experts, Location(f"{gguf}.ffn_gate_inp"))
        self._router = source.linear([router], hidden, role="router", cut=None)
        self._gate_up: list[Weight] = []
        self._down: list[Weight] = []
        for expert in range(experts.num_experts):
            gate, up, down = _parts(config, experts, layer, names, expert)
            self._gate_up.append(source.linear([gate, up], hidden, role="expert", cut="output"))
            self._down.append(source.linear([down], experts.inner, role="expert", cut="input"))
        self._is_gelu = is_gelu(config)
        self._shared: MLP[Weight, Vector] | None = None
        self._shared_gate: Weight | None = None
        if experts.shared_inner:
            self._shared = MLP(config, source, _shared_parts(config, experts, layer, names))
        if experts.has_shared_gate:
            gate = Part(f"{prefix}.{names.shared_gate}", 1, Location(f"{gguf}.ffn_gate_inp_shexp"))
            self._shared_gate = source.linear([gate], hidden, role="router", cut=None)

    def forward(self, ops: Ops[Tensor, Weight, Vector], x: Tensor) -> Tensor:
        """x [num_tokens, hidden_size] -> same shape."""
        routes = ops.route(ops.linear(x, self._router), self._config.top_k, self._config.renormalise)
        gate_up = ops.experts(ops.dispatch(x, routes), self._gate_up, routes)
        made = ops.experts(ops.gelu_mul(gate_up) if self._is_gelu else ops.silu_mul(gate_up), self._down, routes)
        total = ops.combine(made, routes)
        if self._shared is None:
            return total
        shared = self._shared.forward(ops, x)
        if self._shared_gate is not None:
            shared = ops.gate_rows(shared, ops.linear(x, self._shared_gate))
        return ops.add(total, shared)


def _parts(config: ModelConfig, experts: ExpertsConfig, layer: int, names: ExpertNames, expert: int) -> tuple[Part, Part, Part]:
    """gate, up and down of one expert."""
    prefix, gguf, inner, hidden = f"model.layers.{layer}", f"blk.{layer}", experts.inner, config.hidden_size

    def part(name: str, rows: int, stack: str, folder: Location) -> Part:
        return Part(f"{prefix}.mlp.experts.{expert}.{name}_proj", rows, Location(f"{gguf}.{stack}", expert * rows), folder)

    if names.gate_up is not None:
        first = 2 * expert * inner
        gate, up = Location(f"{prefix}.{names.gate_up}", first), Location(f"{prefix}.{names.gate_up}", first + inner)
        down = Location(f"{prefix}.{names.down}", expert * hidden)
    else:
        gate, up, down = (Location(f"{prefix}.{name.format(expert)}") for name in (names.gate, names.up, names.down))
    return (
        part("gate", inner, "ffn_gate_exps", gate),
        part("up", inner, "ffn_up_exps", up),
        part("down", hidden, "ffn_down_exps", down),
    )


def _shared_parts(config: ModelConfig, experts: ExpertsConfig, layer: int, names: ExpertNames) -> tuple[Part, Part, Part]:
    """gate, up and down of the expert that every token goes to."""
    prefix, gguf, inner = f"model.layers.{layer}", f"blk.{layer}", experts.shared_inner
    gate, up = (Location(f"{prefix}.{name}") for name in names.shared_gate_up)
    if gate == up:
        gate, up = Location(gate.tensor, 0), Location(up.tensor, inner)

    def part(name: str, rows: int, folder: Location) -> Part:
        return Part(f"{prefix}.mlp.shared_expert.{name}_proj", rows, Location(f"{gguf}.ffn_{name}_shexp"), folder)

    return (
        part("gate", inner, gate),
        part("up", inner, up),
        part("down", config.hidden_size, Location(f"{prefix}.{names.shared_down}")),
    )
