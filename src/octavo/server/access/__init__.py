"""Access: what each API key may do, and how much of it is left."""
