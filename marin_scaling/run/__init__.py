"""Training runs: specs, records, the store, run tables, audits and loss curves."""
