"""Sessions: what an agent is given for a turn, the step log, the five tools, agents. Not here: claims, leases, commits (`dispatch`)."""
