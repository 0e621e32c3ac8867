"""Training and evaluation text from files, hubs, caches or the standard library, as tokens on disk."""
