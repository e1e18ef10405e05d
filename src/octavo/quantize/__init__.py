"""quantize: what rounding weights costs, measured."""
