"""What stays at home: receipts, budgets, the own threshold."""
