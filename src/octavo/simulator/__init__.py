"""The real scheduler and block pool under a virtual clock: what a load would do to an engine, or to a fleet of them."""
