"""Keys, SSH signatures and the list of allowed signers."""
