"""What is trained and evaluated on: text from files, hubs, caches or this Python, as tokens on disk."""
