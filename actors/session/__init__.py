"""Sessions: what an agent is given for a turn, the step log, the agent tools, agents. Not here: claims, leases, commits (`dispatch`)."""
