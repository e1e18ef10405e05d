"""ASGI middleware, one duty per file."""
