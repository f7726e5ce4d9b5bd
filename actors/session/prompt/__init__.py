"""Prompts: what a chat agent's model is told. Not here: asking it (`models`), and what is done with its answer (`agents/chat`)."""
