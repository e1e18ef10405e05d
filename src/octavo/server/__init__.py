"""The HTTP face: text in, text out, and all validation of requests."""
