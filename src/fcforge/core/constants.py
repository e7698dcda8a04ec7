"""Constants of FC features that numpy and torch code share."""

TAU = 0.4  # threshold of FC below which an edge is not in the graph
SHRINK = 0.4  # share of the identity matrix mixed into FC before its logarithm
LOG_SCALE = 0.05  # divisor of that logarithm's entries: their typical spread; fixed, never learned
