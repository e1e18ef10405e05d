"""Load generation: workloads, a small HTTP client that measures, and the report."""
