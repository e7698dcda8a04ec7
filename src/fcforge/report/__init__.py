"""Reports for people: every table, page and figure, and the text of `inspect`."""
