"""What every protocol shares: names, prompts, generation, usage, the door. No body, shape or framing of any protocol."""
