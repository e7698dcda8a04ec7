"""The chain as a model: settings, arrays, a step, audits (torch)."""
