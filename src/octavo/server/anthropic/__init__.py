"""Anthropic's Messages API: one answer to a conversation, as content blocks."""
