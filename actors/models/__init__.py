"""Models: a prompt in, text and tool calls out, over the network. Not here: what a turn does with an answer (`session`)."""
