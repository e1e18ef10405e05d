"""OpenAI's Responses API: one answer to a conversation, as items. Nothing is stored between requests."""
