"""Parts that several methods share; a method imports from here, never from another method."""
