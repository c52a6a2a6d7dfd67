"""Where a run is kept: SQLite or PostgreSQL behind one interface, backup and restore."""
