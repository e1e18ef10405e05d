"""Batch files: OpenAI's JSON lines of requests, answered by the app without a socket, into a file of answers."""
