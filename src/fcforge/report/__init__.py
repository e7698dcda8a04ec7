"""What a person looks at: every table, page and picture, and the words of `inspect`."""
