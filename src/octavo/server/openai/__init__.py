"""The OpenAI-compatible endpoints, one per file."""
