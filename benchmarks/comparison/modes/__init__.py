"""One comparison per file; each gives a `Comparison` to print and to store."""
