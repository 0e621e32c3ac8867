"""One dial, a FLOP budget, gives every choice: shape, batch, steps, learning rates; each by a formula with its source."""
