"""Conversations: how model families write reasoning and tool calls, and how their text is taken apart again."""
