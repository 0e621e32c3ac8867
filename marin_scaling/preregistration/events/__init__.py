"""Events after a registration: seals, notices, amendments and time stamps."""
