"""KV cache bookkeeping: block ids, never tensors. Pure: no I/O, no clock, no device."""
