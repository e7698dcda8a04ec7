"""Pages and terminal text about consortium files."""
