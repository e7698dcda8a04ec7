"""What several methods share; a method imports from here, never from another method."""
