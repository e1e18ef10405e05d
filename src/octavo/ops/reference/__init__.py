"""The reference backend: numpy float32, obviously right, the definition that other backends are tested against."""
