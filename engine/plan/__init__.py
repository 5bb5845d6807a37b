"""Memory is planned, not discovered: bytes of everything before anything is allocated."""
