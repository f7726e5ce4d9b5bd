"""The model: plain attrs values and rules. No I/O, no clock, imports nothing of ours outside this folder."""
