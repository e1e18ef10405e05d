"""The worker: owns a device, keeps what it was told of each sequence, turns step plans into tokens."""
