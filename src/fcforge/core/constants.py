"""Constants of FC features that the numpy and the torch code share."""

TAU = 0.4  # an edge below it is not in the graph
SHRINK = 0.4  # share of the identity that is mixed into FC before its logarithm
LOG_SCALE = 0.05  # typical spread of an entry of that logarithm; fixed, never learnt
