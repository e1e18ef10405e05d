"""Ollama's API under /api, for programs that speak only that: one endpoint per file, over the same turns as the others."""
